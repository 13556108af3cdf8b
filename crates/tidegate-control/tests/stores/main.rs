//! What both stores do, and do in the same way: every test here runs on SQLite and on a real PostgreSQL, and cannot be written for one.

mod support; // a fresh database for each, on both
mod child; // this program again, as a process that is killed
mod records; // quotas, tiers, rules, tokens, usage
mod nudges; // notifications, which may lie
mod trail; // the audit trail and what follows it
mod migrations; // the schema, by one of many and interrupted
mod previous; // programs of the version before, on the schema of today
mod sink; // the audit trail as lines, whatever is killed when
mod backup; // all of it, out and in
mod faults; // kill -9, a full disk, a database that hangs
