//! Does the testbed do what it says? What is tested with it is worth no more than this.

mod alone; // one server
mod breaking; // the proxy
mod fleets; // clusters and sentinels
mod postgres; // PostgreSQL, and a disk
