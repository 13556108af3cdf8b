//! Who may do what, by API: `/admin/v1/tokens`.

use std::sync::Arc;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Desk;
use super::auth::{self, Wish};
use super::call::{Answer, Call, PageOf, answer, cursor, no_content, ok};
use super::problem::Problem;
use super::when::When;
use crate::model::{Scope, Token};

/// A token to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewToken)]
pub(super) struct TokenBody {
    /// For people, and for the audit trail.
    name: String,
    /// What it may do; each may do what those before it may.
    #[schema(value_type = ScopeName)]
    scope: Scope,
    /// The only domain that it may do this to. Tokens, tiers and the audit trail are then closed to it.
    #[serde(default)]
    tenant: Option<String>,
    /// Until when; for good without.
    #[serde(default)]
    expires_at: Option<When>,
}

/// What a token may do.
#[derive(ToSchema)]
#[schema(as = Scope, rename_all = "snake_case")]
#[allow(dead_code, reason = "it is there for its schema: what is read is the model's own")]
enum ScopeName {
    Read,
    Write,
    Admin,
}

/// A token, without its secret.
#[derive(Serialize, ToSchema)]
#[schema(as = Token)]
pub(super) struct TokenAnswer {
    id: String,
    /// The first characters of the secret.
    prefix: String,
    name: String,
    #[schema(value_type = ScopeName)]
    scope: Scope,
    tenant: Option<String>,
    created_at: When,
    created_by: String,
    expires_at: Option<When>,
    revoked_at: Option<When>,
}

/// A token that was just made.
#[derive(Serialize, ToSchema)]
#[schema(as = CreatedToken)]
pub(super) struct Created {
    /// The text to be sent as `Authorization: Bearer …`. It is shown now and never again.
    token: String,
    #[serde(flatten)]
    #[schema(inline)]
    of: TokenAnswer,
}

impl TokenAnswer {
    fn of(token: Token) -> Self {
        let Token { id, prefix, scope, tenant, name, created_at, created_by, expires_at, revoked_at, .. } =
            token;
        Self {
            id,
            prefix,
            name,
            scope,
            tenant,
            created_at: When(created_at),
            created_by,
            expires_at: expires_at.map(When),
            revoked_at: revoked_at.map(When),
        }
    }
}

pub(super) async fn create(desk: Arc<Desk>, mut call: Call) -> Answer {
    let body: TokenBody = call.json().await?;
    if body.expires_at.is_some_and(|When(at)| at <= desk.now_us()) {
        return Err(Problem::invalid("expires_at", "has passed"));
    }
    let TokenBody { name, scope, tenant, expires_at } = body;
    let wish = Wish { name, scope, tenant, expires_at: expires_at.map(|When(us)| us) };
    let (token, secret) = auth::create(&desk.store, &call.who(), wish).await?;
    answer(StatusCode::CREATED, &Created { token: secret.reveal().into(), of: TokenAnswer::of(token) })
}

pub(super) async fn list(desk: Arc<Desk>, call: Call) -> Answer {
    let after = call.query().cursor()?;
    let page = desk.store.tokens(after.as_deref(), call.query().limit()?).await?;
    let items: Vec<TokenAnswer> = page.items.into_iter().map(TokenAnswer::of).collect();
    ok(&PageOf { items, next: cursor(page.next) })
}

pub(super) async fn revoke(desk: Arc<Desk>, call: Call) -> Answer {
    desk.store.revoke_token(&call.who(), call.name()).await?;
    desk.doorman.forget(call.name());
    no_content()
}
