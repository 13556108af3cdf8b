//! All calls there are: the one table that the router, the OpenAPI document and the test of who may do what are made from.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use http::Method;
use utoipa::ToSchema;

use super::call::{Answer, Call};
use super::openapi::{SchemaOf, page_of, schema_of};
use super::{Desk, bulk, export, openapi, quotas, rules, states, tiers, tokens, trail, usage};
use crate::model::Scope;

/// Answers a call.
pub(super) type Handler = fn(Arc<Desk>, Call) -> Pin<Box<dyn Future<Output = Answer> + Send>>;

/// One call.
pub struct Route {
    /// By this method.
    pub method: Method,
    /// At this path; what stands in braces is named by the caller, percent-encoded.
    pub path: &'static str,
    /// What it does.
    pub summary: &'static str,
    pub(super) needs: Needs,
    /// The parameters behind the question mark.
    pub(super) query: &'static [&'static str],
    pub(super) body: Option<Sent>,
    pub(super) answers: Vec<(u16, Given)>,
    /// Does it heed If-Match and If-None-Match?
    pub(super) is_conditional: bool,
    /// Can what it is about be written elsewhere, or counted elsewhere?
    pub(super) is_elsewhere: bool,
    /// May it take long?
    pub(super) is_long: bool,
    pub(super) handler: Handler,
}

impl Route {
    /// What a token has to be allowed; none needs no token.
    pub fn scope(&self) -> Option<Scope> {
        match self.needs {
            Needs::Nothing => None,
            Needs::Token { scope, .. } => Some(scope),
        }
    }

    /// Is it open to tokens that are bound to a domain?
    pub fn is_open_to_tenants(&self) -> bool {
        matches!(self.needs, Needs::Token { tenants: true, .. })
    }
}

/// Who may call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needs {
    /// Everybody.
    Nothing,
    /// Who has a token.
    Token {
        /// That may this.
        scope: Scope,
        /// Also one that is bound to a domain?
        tenants: bool,
    },
}

/// What is sent.
#[derive(Clone, Copy)]
pub(super) enum Sent {
    Json(SchemaOf),
    Lines,
}

/// What is given.
#[derive(Clone, Copy)]
pub(super) enum Given {
    Json(SchemaOf),
    Texts(&'static [&'static str]),
    Nothing,
}

impl Route {
    fn new(method: Method, path: &'static str, summary: &'static str, handler: Handler) -> Self {
        Self {
            method,
            path,
            summary,
            needs: Needs::Nothing,
            query: &[],
            body: None,
            answers: Vec::new(),
            is_conditional: false,
            is_elsewhere: false,
            is_long: false,
            handler,
        }
    }

    fn get(path: &'static str, summary: &'static str, handler: Handler) -> Self {
        Self::new(Method::GET, path, summary, handler)
    }

    fn put(path: &'static str, summary: &'static str, handler: Handler) -> Self {
        Self::new(Method::PUT, path, summary, handler)
    }

    fn post(path: &'static str, summary: &'static str, handler: Handler) -> Self {
        Self::new(Method::POST, path, summary, handler)
    }

    fn delete(path: &'static str, summary: &'static str, handler: Handler) -> Self {
        Self::new(Method::DELETE, path, summary, handler)
    }

    /// For tokens that may this, bound to a domain or not.
    fn by(mut self, scope: Scope) -> Self {
        self.needs = Needs::Token { scope, tenants: true };
        self
    }

    /// For tokens that may this everywhere.
    fn by_whole(mut self, scope: Scope) -> Self {
        self.needs = Needs::Token { scope, tenants: false };
        self
    }

    fn query(mut self, names: &'static [&'static str]) -> Self {
        self.query = names;
        self
    }

    fn body<T: ToSchema>(mut self) -> Self {
        self.body = Some(Sent::Json(schema_of::<T>));
        self
    }

    fn lines(mut self) -> Self {
        self.body = Some(Sent::Lines);
        self
    }

    fn gives<T: ToSchema>(mut self, status: u16) -> Self {
        self.answers.push((status, Given::Json(schema_of::<T>)));
        self
    }

    fn gives_pages<T: ToSchema>(mut self) -> Self {
        self.answers.push((200, Given::Json(page_of::<T>)));
        self
    }

    fn gives_texts(mut self, content_types: &'static [&'static str]) -> Self {
        self.answers.push((200, Given::Texts(content_types)));
        self
    }

    fn gives_nothing(mut self) -> Self {
        self.answers.push((204, Given::Nothing));
        self
    }

    fn conditional(mut self) -> Self {
        self.is_conditional = true;
        self
    }

    fn elsewhere(mut self) -> Self {
        self.is_elsewhere = true;
        self
    }

    fn long(mut self) -> Self {
        self.is_long = true;
        self
    }
}

/// All of them; those of one path stand together.
pub fn routes() -> &'static [Route] {
    static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(table);
    &ROUTES
}

/// A handler, as the table holds it.
macro_rules! with {
    ($handler:path) => {
        |desk, call| Box::pin($handler(desk, call))
    };
}

const RULE: &str = "/admin/v1/rules/{id}";
/// Where another API had them.
const OTHER_RULE: &str = "/api/admin/rate-limit-rules/{ruleId}";

fn table() -> Vec<Route> {
    use Scope::{Admin, Read, Write};
    let mut all = vec![
        Route::get("/livez", "Is the control plane there?", with!(openapi::live))
            .gives_texts(&["text/plain"]),
        Route::get("/openapi.json", "This document", with!(openapi::get)).gives_texts(&["application/json"]),
        Route::get("/admin/v1/quotas", "Lists quotas in the order of their keys", with!(quotas::list))
            .by(Read)
            .query(&[
                "tier",
                "prefix",
                "user_id",
                "client_id",
                "expires_before",
                "expires_after",
                "cursor",
                "limit",
            ])
            .gives_pages::<quotas::QuotaAnswer>(),
        Route::get("/admin/v1/quotas/{api_key}", "Reads the quota of a key", with!(quotas::get))
            .by(Read)
            .gives::<quotas::QuotaAnswer>(200),
        Route::put("/admin/v1/quotas/{api_key}", "Writes the quota of a key, all of it", with!(quotas::put))
            .by(Write)
            .body::<quotas::QuotaBody>()
            .conditional()
            .gives::<quotas::QuotaAnswer>(200),
        Route::delete("/admin/v1/quotas/{api_key}", "Forgets the quota of a key", with!(quotas::delete))
            .by(Write)
            .conditional()
            .gives_nothing(),
        Route::post(
            "/admin/v1/quotas:import",
            "Writes many quotas, from CSV or JSON lines",
            with!(bulk::import),
        )
        .by(Write)
        .query(&["dry_run"])
        .lines()
        .long()
        .gives::<bulk::Imported>(200),
        Route::get("/admin/v1/quotas:export", "All quotas, as CSV or JSON lines", with!(bulk::export))
            .by(Read)
            .query(&["format", "tier", "prefix"])
            .gives_texts(&["application/x-ndjson", "text/csv"]),
        Route::get("/admin/v1/tiers", "Lists tiers, those of rules too", with!(tiers::list))
            .by_whole(Read)
            .query(&["cursor", "limit"])
            .gives_pages::<tiers::TierAnswer>(),
        Route::get("/admin/v1/tiers/{name}", "Reads a tier", with!(tiers::get))
            .by_whole(Read)
            .gives::<tiers::TierAnswer>(200),
        Route::put("/admin/v1/tiers/{name}", "Writes a tier, all of it", with!(tiers::put))
            .by_whole(Write)
            .body::<tiers::TierBody>()
            .conditional()
            .gives::<tiers::TierAnswer>(200),
        Route::delete(
            "/admin/v1/tiers/{name}",
            "Takes a tier away; its keys keep its name",
            with!(tiers::delete),
        )
        .by_whole(Write)
        .conditional()
        .elsewhere()
        .gives_nothing(),
        Route::get("/admin/v1/rules", "Lists the rules in force, or those by API", with!(rules::list))
            .by(Read)
            .query(&["source", "domain", "cursor", "limit"])
            .gives_pages::<rules::Listed>(),
    ];
    for path in [RULE, OTHER_RULE] {
        all.extend(rule(path));
    }
    all.extend([
        Route::get("/admin/v1/rules/{id}/history", "What a rule by API ever was", with!(rules::history))
            .by(Read)
            .query(&["cursor", "limit"])
            .gives_pages::<rules::VersionAnswer>(),
        Route::post(
            "/admin/v1/rules/{id}/rollback",
            "Makes of what a rule was its newest version",
            with!(rules::roll_back),
        )
        .by(Write)
        .query(&["dry_run"])
        .body::<rules::Rollback>()
        .conditional()
        .elsewhere()
        .gives::<rules::Written>(200),
        Route::get("/admin/v1/rules/{id}/state", "What a rule does", with!(states::get))
            .by(Read)
            .gives::<states::StateAnswer>(200),
        Route::put(
            "/admin/v1/rules/{id}/state",
            "Sets what a rule does, wherever it is written",
            with!(states::put),
        )
        .by(Write)
        .body::<states::StateBody>()
        .conditional()
        .gives::<states::StateAnswer>(200),
        Route::delete(
            "/admin/v1/rules/{id}/state",
            "Lets a rule do again what it says itself",
            with!(states::delete),
        )
        .by(Write)
        .conditional()
        .gives_nothing(),
        Route::get("/admin/v1/usage/{api_key}", "What a caller has used", with!(usage::get))
            .by(Read)
            .query(&["domain", "descriptor"])
            .elsewhere()
            .gives::<usage::UsageAnswer>(200),
        Route::delete("/admin/v1/usage/{api_key}", "Resets counters of a caller", with!(usage::delete))
            .by(Write)
            .query(&["domain", "descriptor"])
            .elsewhere()
            .gives::<usage::Reset>(200),
        Route::get("/admin/v1/tokens", "Lists tokens, without their secrets", with!(tokens::list))
            .by_whole(Admin)
            .query(&["cursor", "limit"])
            .gives_pages::<tokens::TokenAnswer>(),
        Route::post("/admin/v1/tokens", "Makes a token; its secret is shown once", with!(tokens::create))
            .by_whole(Admin)
            .body::<tokens::TokenBody>()
            .gives::<tokens::Created>(201),
        Route::delete(
            "/admin/v1/tokens/{id}",
            "Makes a token worth nothing, for good",
            with!(tokens::revoke),
        )
        .by_whole(Admin)
        .gives_nothing(),
        Route::get("/admin/v1/audit", "What was done", with!(trail::list))
            .by_whole(Read)
            .query(&["since", "until", "actor", "kind", "subject", "order", "cursor", "limit"])
            .gives_pages::<crate::audit_line::AuditLine>(),
        Route::get("/admin/v1/audit/verify", "Is the audit trail as it was written?", with!(trail::verify))
            .by_whole(Read)
            .query(&["from", "to"])
            .long()
            .gives::<trail::Verified>(200),
        Route::get("/admin/v1/export", "Rules by API, tiers and quotas, as YAML", with!(export::export))
            .by_whole(Read)
            .query(&["of"])
            .gives_texts(&["application/yaml"]),
    ]);
    all
}

/// One rule, at both paths.
fn rule(path: &'static str) -> [Route; 3] {
    [
        Route::get(path, "Reads a rule, in the form in which it was sent", with!(rules::get))
            .by(Scope::Read)
            .gives::<rules::Found>(200),
        Route::put(path, "Writes a rule by API, or says what would change", with!(rules::put))
            .by(Scope::Write)
            .query(&["dry_run"])
            .body::<rules::AnyRule>()
            .conditional()
            .elsewhere()
            .gives::<rules::Written>(200),
        Route::delete(path, "Takes a rule by API away, or says what would change", with!(rules::delete))
            .by(Scope::Write)
            .query(&["dry_run"])
            .conditional()
            .elsewhere()
            .gives::<rules::DryRun>(200)
            .gives_nothing(),
    ]
}
