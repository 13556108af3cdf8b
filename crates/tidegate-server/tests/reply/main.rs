//! What callers are told about decisions that were really made, over HTTP. `TIDEGATE_BLESS=1 cargo test -p tidegate-server` writes the
//! texts in `tests/golden/reply` again; read the difference before it is committed.

mod node; // rules, counters, and answers as text

mod promised; // the answers that clients were promised
mod shapes; // every dialect, style and code
mod speaker; // who speaks for a request, and what for
mod properties; // what holds for any rule and any request
mod allocations; // what an answer costs
