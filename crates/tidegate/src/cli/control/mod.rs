//! The admin API by hand: a verb for each thing that it knows, a word for each call. A test holds the table of all calls beside these.

mod client; // one call, and what comes of it
mod problem; // why something cannot be done, as a sentence
mod times; // instants and spans, as people write them
mod show; // tables and records
mod overrides; // limits of single callers and of tiers, on a command line
mod documents; // what is read from a file
mod quota; // what is agreed with single callers
mod tier; // sets of limits with a name
mod rule; // rules by API, and the kill switch
mod usage; // what a caller has used
mod token; // who may do what
mod audit; // what was done
mod verify; // is that as it was written?

pub(crate) use audit::Audit;
pub(crate) use quota::Quota;
pub(crate) use rule::Rule;
pub(crate) use tier::Tier;
pub(crate) use token::Token;
pub(crate) use usage::Usage;

use super::ask::CA_VARIABLE;

/// Names the API.
const ADMIN_VARIABLE: &str = "TIDEGATE_ADMIN";
/// Has the token.
const TOKEN_VARIABLE: &str = "TIDEGATE_TOKEN";
/// Names a file that has it.
const TOKEN_FILE_VARIABLE: &str = "TIDEGATE_TOKEN_FILE";

/// Variables of the environment that are no settings of a node.
pub(crate) const VARIABLES: [&str; 4] = [ADMIN_VARIABLE, TOKEN_VARIABLE, TOKEN_FILE_VARIABLE, CA_VARIABLE];
