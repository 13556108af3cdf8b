//! The text of a configuration: from bytes that anybody may have written to values that nothing behind has to check.
//!
//! Everything about a file is bounded, and all that is wrong with it is told at once, with place and remedy.
//!
//! ```
//! use tidegate_config::{Caps, Field, Kind, Place, Reader, Sources, Style, parse};
//!
//! static LIMIT: Place = Place {
//!     name: "limit",
//!     doc: "How much is allowed.",
//!     fields: &[
//!         Field::new("name", Kind::Text, "What people call it."),
//!         Field::new("rate", Kind::Rate, "The amount and its window.").required().example("100/min"),
//!     ],
//! };
//!
//! let mut sources = Sources::new();
//! let reader = Reader::new(&[&LIMIT]);
//! let file = sources.add("limit.yaml", "nam: login\nrate: 5/15m\n".into());
//! match file.and_then(|source| parse(source, &sources, &Caps::default())) {
//!     Err(trouble) => reader.say(trouble),
//!     Ok(tree) => {
//!         for map in tree.documents().filter_map(|document| reader.map(document, &LIMIT)) {
//!             assert_eq!(map.rate("rate").map(|rate| rate.value.amount), Some(5));
//!             assert_eq!(map.text("name"), None);
//!         }
//!     }
//! }
//! let said = reader.finish().render(&sources, Style::Plain);
//! assert!(said.starts_with("error[unknown-key]: unknown key `nam` in `limit`\n --> limit.yaml:1:1"), "{said}");
//! assert!(said.contains("did you mean `name`?"), "{said}");
//! ```

mod codes; // what can be wrong: the one table
mod diagnostic; // one thing that is wrong
mod report; // all that was found
mod theirs; // what envoyproxy/ratelimit says of it
mod render; // as text and as JSON
mod source; // files, and places in them

mod yaml; // text to tree

mod fields; // tables of what may stand where
mod near; // "did you mean …?"
mod scalars; // flags, numbers, percentages, addresses
mod times; // durations and rates
mod reader; // trees to values, by the tables
mod json; // what is only handed on

mod rules; // rule files: documents to drafts
mod graft; // rules that were written one by one
mod load; // files and folders to all rules
mod fit; // those that were written one by one, as far as they go together with the files
mod rule_tests; // files of rule tests: documents to what is asked and expected
mod settings; // flags, environment, file and defaults to settings
mod drop_in; // the variables of envoyproxy/ratelimit to settings
mod watch; // when files change
mod live; // the book in force

mod reference; // the tables as Markdown
mod schema; // the tables as JSON Schema

pub use codes::{Code, Page, Severity, document};
pub use diagnostic::{Diagnostic, escaped, quoted};
pub use drop_in::{
    DropIn, Fate, Form, Mogrify, OtherStore, Read as DropInRead, Statsd, StoreAuth, VARIABLES, Variable,
    read as read_drop_in,
};
pub use fields::{Field, Kind, Origin, Place, Status, Word, reachable};
pub use json::json;
pub use live::{Following, LiveRules};
pub use load::{LeftOut, Loaded, RuleFiles, load, load_texts};
pub use near::nearest;
pub use reader::{Map, Names, Reader, Spanned, Value, Values};
pub use reference::reference;
pub use render::Style;
pub use report::{KEPT_MAX, Report};
pub use rule_tests::{
    AskStep, EXPECT, Expect, LoadedTests, RULE_TESTS, RuleTest, RuleTests, STEP, Step, TEST, load_tests,
    load_tests_text,
};
pub use rules::{DEFAULTS, DESCRIPTOR, DOMAIN, Defaults, EXEMPT, RATE_LIMIT, REPLACES, TIER};
pub use scalars::{Cidr, ListenAt, Percent};
pub use schema::{rule_tests_schema, rules_schema, schema, settings_schema};
pub use settings::{
    AuditSinkSettings, ControlSettings, FILE_VARIABLE, Given, Instead, InternalSettings, ListenerSettings,
    Resolved, Role, SETTINGS, SETTINGS_FILE, Said, Setting, Settings, StoreSettings, TlsSettings,
    XdsSettings, XdsTlsSettings, resolve, without_password,
};
pub use source::{LineColumn, Sources, Span};
pub use times::{Rate, TimeUnit, Window};
pub use watch::Watch;
pub use yaml::{Caps, Entries, Items, Node, NodeKind, Tree, parse};
