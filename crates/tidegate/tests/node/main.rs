//! A node as its users have it: the real binary, over real sockets, asked by well-meaning clients and by hostile ones.

mod support;

mod rls; // Envoy's protocol, field by field
mod places; // places whose holder is gone
mod reservations; // charges that are settled later
mod rls_errors; // what is an error there, and what must not be one
mod http; // checks, and what operators read
mod command_line; // the verbs that ask a node
mod floods; // clients that send too much
mod slow; // clients that hold what others need
mod audit; // what clients were told is what counters hold
mod documents; // what the documents show
mod sockets; // RLS at a socket of the file system
mod tls; // certificates
mod calendars; // quotas of days and months, kept when counters are lost
mod audit_trail; // the audit trail in a file, verified, and all that is kept in a backup
mod refusals; // what a caller was refused, in a file
mod canaries; // secrets and names that must not be found
mod control; // quotas, tiers, states, by their effect
mod control_writes; // every write, by its effect on another process
mod control_xds; // the kill switch, for rules that come from a server
mod control_rules; // rules by API beside files that change
mod control_seeds; // rules and usage in the forms of other designs
mod control_usage; // what a caller has used
mod control_places; // SQLite is for one node
mod verbs; // the same by hand: the verbs that ask the admin API
mod control_alone; // a process that decides nothing
mod control_faults; // its database away, hanging, telling nothing
mod control_metrics; // what operators see of the control plane
mod openapi; // the same by somebody else's tool, from the OpenAPI document
mod fleet; // several nodes on one store
mod internal; // calls that come from inside
mod drop_in; // in the place of envoyproxy/ratelimit
mod common_body; // what its own tests ask of it, on every kind of store
mod reference_service; // what they expect of its service
mod xds; // rules that come from a server
