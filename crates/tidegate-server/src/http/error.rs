//! Requests that cannot be answered: what is wrong with them, and how to mend it.

use serde_json::json;
use tidegate_counters::Unavailable;

use super::{Answer, PATHS, allow, json};
use crate::node::NO_RULES;

/// How much is said about it, in characters.
const MESSAGE_MAX: usize = 400;

/// The code of a node without rules.
const NO_RULES_CODE: &str = "NO_RULES";

/// Why a request is not answered.
#[derive(Debug)]
pub(super) struct HttpError {
    status: u16,
    code: &'static str,
    message: String,
    /// What it takes, where that is what is wrong.
    methods: Option<String>,
}

impl HttpError {
    /// What was sent is not understood.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self { status: 400, code: "INVALID_REQUEST", message: message.into(), methods: None }
    }

    /// It is larger than may be.
    pub(super) fn too_large(message: impl Into<String>) -> Self {
        Self { status: 413, code: "TOO_LARGE", message: message.into(), methods: None }
    }

    /// It did not come in time.
    pub(super) fn too_slow() -> Self {
        let message = "the body did not come in time".into();
        Self { status: 408, code: "TOO_SLOW", message, methods: None }
    }

    /// Too many ask for what takes long.
    pub(super) fn busy() -> Self {
        let message = "too many ask for this at the same time; try again".into();
        Self { status: 503, code: "BUSY", message, methods: None }
    }

    /// The counters cannot be asked.
    pub(super) fn unavailable(why: &Unavailable) -> Self {
        Self { status: 503, code: "STORE_UNAVAILABLE", message: why.to_string(), methods: None }
    }

    /// There are no rules yet.
    pub(super) fn no_rules() -> Self {
        Self { status: 503, code: NO_RULES_CODE, message: NO_RULES.into(), methods: None }
    }

    /// It may not be asked from there.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self { status: 403, code: "FORBIDDEN", message: message.into(), methods: None }
    }

    /// Something broke here.
    pub(super) fn broken(message: impl Into<String>) -> Self {
        Self { status: 500, code: "INTERNAL", message: message.into(), methods: None }
    }

    /// Is it the node's fault that there is no answer, and no mistake of whoever asked?
    pub(super) fn is_ours(&self) -> bool {
        self.code == NO_RULES_CODE
    }

    /// The same, about one of several checks.
    pub(super) fn of_item(self, at: usize) -> Self {
        Self { message: format!("check {} of the list: {}", at + 1, self.message), ..self }
    }

    /// It is asked of a process that does not decide.
    pub(super) fn elsewhere(path: &str) -> Self {
        let message = format!(
            "{path} is not here: this process has the role `control`, which decides nothing; ask a node that decides"
        );
        Self { status: 404, code: "NOT_FOUND", message, methods: None }
    }

    pub(super) fn not_found(path: &str) -> Self {
        let mut known: Vec<&str> = PATHS.iter().map(|(path, ..)| *path).collect();
        known.dedup();
        let shown: String = path.chars().take(64).collect();
        let message = format!("there is no {shown}; there are: {}", known.join(", "));
        Self { status: 404, code: "NOT_FOUND", message, methods: None }
    }

    pub(super) fn method(path: &str, methods: &str) -> Self {
        let message = format!("{path} takes {methods}");
        Self { status: 405, code: "METHOD_NOT_ALLOWED", message, methods: Some(methods.into()) }
    }

    pub(super) fn answer(&self) -> Answer {
        // What is wrong may be as long as the request.
        let message: String = self.message.chars().take(MESSAGE_MAX).collect();
        let body = json!({ "error": { "code": self.code, "message": message } });
        let mut answer = json(self.status, body.to_string().into_bytes());
        if let Some(methods) = &self.methods {
            allow(&mut answer, methods);
        }
        answer
    }
}
