//! The admin API: every test here runs on SQLite and on a real PostgreSQL, over a process that is played by [`rig::Process`].

#[path = "../stores/support.rs"]
#[allow(dead_code, reason = "it is the support of the stores' own tests, of which these need a part")]
mod support;
mod rig; // an API over a store, and who calls it
mod seeds; // requests and answers as the designs have them
mod access; // who may do what
mod quotas; // records of keys, one by one and many at a time
mod rules; // rules by API, their versions, the kill switch
mod others; // tiers, usage, tokens, the audit trail, manners
