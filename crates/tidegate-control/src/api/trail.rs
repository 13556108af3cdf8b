//! What was done: `/admin/v1/audit`.

use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::auth::hex;
use super::call::{Answer, Call, PageOf, Query, cursor, ok};
use super::problem::Problem;
use crate::audit_line::AuditLine;
use crate::model::{AuditFilter, AuditOrder, Kind, Verification};

/// What looking over the audit trail found.
#[derive(Serialize, ToSchema)]
pub(super) struct Verified {
    /// Is every row as it was written, and none missing?
    intact: bool,
    /// So many rows are.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<u64>,
    /// The last of them, or the first that does not fit.
    seq: u64,
    /// The hash of the last row; kept elsewhere, it shows later that nobody wrote the whole trail anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

pub(super) async fn list(desk: Arc<Desk>, call: Call) -> Answer {
    let query = call.query();
    let kind = query.get("kind").map(str::parse::<Kind>).transpose();
    let text = |name: &str| query.get(name).map(str::to_owned);
    let filter = AuditFilter {
        since: query.time("since")?,
        until: query.time("until")?,
        actor: text("actor"),
        kind: kind.map_err(|why| Problem::bad_request("kind", why))?,
        subject: text("subject"),
        ..AuditFilter::default()
    };
    let order = match query.get("order") {
        None | Some("newest") => AuditOrder::NewestFirst,
        Some("oldest") => AuditOrder::OldestFirst,
        Some(_) => return Err(Problem::bad_request("order", "is `newest` or `oldest`")),
    };
    let page = desk.store.audit(&filter, order, after(query)?, query.limit()?).await?;
    let items: Vec<AuditLine> = page.items.into_iter().map(AuditLine::of).collect();
    ok(&PageOf { items, next: cursor(page.next) })
}

fn after(query: &Query) -> Result<Option<u64>, Problem> {
    let read = query.cursor()?.map(|said| said.parse::<u64>()).transpose();
    read.map_err(|_| Problem::bad_request("cursor", "was not made by this call"))
}

pub(super) async fn verify(desk: Arc<Desk>, call: Call) -> Answer {
    let (from, to) = (call.query().number("from")?, call.query().number("to")?);
    ok(&match desk.store.verify(from.unwrap_or(1), to).await? {
        Verification::Intact { rows, last } => {
            Verified { intact: true, rows: Some(rows), seq: last.seq, hash: Some(hex(&last.hash)), why: None }
        }
        Verification::Broken(broken) => {
            Verified { intact: false, rows: None, seq: broken.seq, hash: None, why: Some(broken.why) }
        }
    })
}
