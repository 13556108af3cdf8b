//! Many quotas at a time: `/admin/v1/quotas:import` and `:export`, as CSV or as JSON lines. Neither is ever held whole.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body::Frame;
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Answer, Call, ok, read_json};
use super::problem::Problem;
use super::quotas::{NO_OVERRIDE, OverrideBody, QuotaBody, bind, filter, known_tiers, minds, refuse_tier};
use super::when::When;
use crate::error::Error;
use crate::model::{Limits, Outcome, Quota, Who};

/// Bytes of an import.
const IMPORT_BYTES: usize = 64 << 20;
/// Bytes of one line of it.
const LINE_BYTES: usize = 256 << 10;
/// Records that are written in one transaction.
const CHUNK: usize = 500;
/// What is wrong is told so often.
const ERRORS_MAX: usize = 100;

/// The columns of CSV: those of the table of overrides, and those of a key's record. A key has a line for each override, one after the
/// other.
const COLUMNS: [&str; 11] = [
    "api_key",
    "tier",
    "descriptor",
    "requests_per_unit",
    "unit",
    "effective_at",
    "expires_at",
    "domain",
    "client_id",
    "user_id",
    "whitelisted",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Csv,
    JsonLines,
}

impl Form {
    fn of(said: &str) -> Option<Self> {
        match said {
            "text/csv" | "csv" => Some(Self::Csv),
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/x-jsonlines"
            | "jsonl" => Some(Self::JsonLines),
            _ => None,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8",
            Self::JsonLines => "application/x-ndjson",
        }
    }
}

/// What has become of an import.
#[derive(Clone, Default, Serialize, ToSchema)]
pub(super) struct Imported {
    /// Was nothing written?
    dry_run: bool,
    /// Records that were read.
    read: u64,
    created: u64,
    updated: u64,
    unchanged: u64,
    /// Records that were not written because something is wrong with them.
    failed: u64,
}

pub(super) async fn import(desk: Arc<Desk>, mut call: Call) -> Answer {
    let Some(form) = call.content_type().as_deref().and_then(Form::of) else {
        return Err(Problem::unsupported("send `text/csv` or `application/x-ndjson`"));
    };
    let done = Imported { dry_run: call.query().flag("dry_run")?, ..Imported::default() };
    let lines = Lines::new(call.take_body());
    let tiers = known_tiers(&desk).await?;
    let who = call.who();
    let mut import = Import {
        desk,
        call,
        who,
        tiers,
        seen: HashSet::new(),
        pending: Vec::new(),
        done,
        errors: Vec::new(),
    };
    let read = match form {
        Form::Csv => import.csv(lines).await,
        Form::JsonLines => import.json_lines(lines).await,
    };
    let ended = match read {
        Ok(()) => import.flush().await,
        Err(problem) => Err(problem),
    };
    let imported = serde_json::to_value(&import.done).unwrap_or(Value::Null);
    match ended {
        // What was written before stays: the same import again goes on where this one ended.
        Err(problem) => Err(problem.with("imported", imported)),
        Ok(()) if import.errors.is_empty() => ok(&import.done),
        Ok(()) => {
            let why = format!(
                "{} of {} records could not be kept; the others were",
                import.done.failed, import.done.read
            );
            Err(Problem::invalid("body", why).errors(import.errors).with("imported", imported))
        }
    }
}

struct Import {
    desk: Arc<Desk>,
    call: Call,
    who: Who,
    tiers: Vec<String>,
    /// Hashes of the keys that were read.
    seen: HashSet<u64>,
    /// What is to be written next, each with its line.
    pending: Vec<(u64, Quota)>,
    done: Imported,
    errors: Vec<Value>,
}

impl Import {
    async fn json_lines(&mut self, mut lines: Lines) -> Result<(), Problem> {
        while let Some((line, text)) = lines.next().await? {
            if !text.trim().is_empty() {
                let read =
                    read_json::<QuotaBody>(text.as_bytes()).and_then(|mut body| match body.api_key.take() {
                        Some(api_key) => body.quota(&api_key),
                        None => Err(Problem::invalid("api_key", "is missing")),
                    });
                self.add(line, read).await?;
            }
        }
        Ok(())
    }

    async fn csv(&mut self, mut lines: Lines) -> Result<(), Problem> {
        let Some((_, header)) = lines.record().await? else {
            return Err(Problem::invalid("line 1", "the names of the columns are missing"));
        };
        let columns = columns(&header)?;
        let mut current: Option<(u64, Row)> = None;
        // The key of a record that has a wrong line. None of it is written: what that line says would be taken away.
        let mut broken: Option<String> = None;
        while let Some((line, cells)) = lines.record().await? {
            if cells.len() == 1 && cells[0].is_empty() {
                continue;
            }
            let key = columns.iter().position(|column| *column == 0).and_then(|at| cells.get(at)).cloned();
            let is_of_current = |(_, first): &(u64, Row)| first.key[0] == key;
            let first = current.as_ref().filter(|current| is_of_current(current)).map(|(_, first)| first);
            match Row::read(&columns, cells).and_then(|row| row.fits(first)) {
                Err(problem) => {
                    if first.is_some() {
                        current = None;
                    }
                    broken = key;
                    self.add(line, Err(problem)).await?;
                }
                Ok(_) if broken.is_some() && broken == key => {}
                Ok(row) => match &mut current {
                    Some((_, first)) if first.key[0] == key => first.overrides.extend(row.overrides),
                    _ => {
                        if let Some((line, row)) = current.replace((line, row)) {
                            self.add(line, row.quota()).await?;
                        }
                    }
                },
            }
        }
        match current {
            Some((line, row)) => self.add(line, row.quota()).await,
            None => Ok(()),
        }
    }

    async fn add(&mut self, line: u64, read: Result<Quota, Problem>) -> Result<(), Problem> {
        self.done.read += 1;
        match read.and_then(|quota| self.judged(quota)) {
            Ok(quota) => self.pending.push((line, quota)),
            Err(problem) => self.fail(line, &problem),
        }
        if self.pending.len() >= CHUNK { self.flush().await } else { Ok(()) }
    }

    fn judged(&mut self, mut quota: Quota) -> Result<Quota, Problem> {
        bind(&self.desk, &self.call.caller, &mut quota)?;
        if let Some(tier) = &quota.tier {
            refuse_tier(&self.tiers, tier)?;
        }
        let quota = quota.checked()?;
        if !self.seen.insert(fingerprint(&quota.api_key)) {
            return Err(Problem::invalid(
                "api_key",
                "was there before; what is said about a key stands together",
            ));
        }
        Ok(quota)
    }

    fn fail(&mut self, line: u64, problem: &Problem) {
        self.done.failed += 1;
        if self.errors.len() < ERRORS_MAX {
            let (field, detail) = problem.told();
            self.errors.push(json!({ "line": line, "field": field, "detail": detail }));
        }
    }

    async fn flush(&mut self) -> Result<(), Problem> {
        let mut pending = std::mem::take(&mut self.pending);
        let keys: Vec<&str> = pending.iter().map(|(_, quota)| quota.api_key.as_str()).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let there = self.desk.store.quotas_of(&keys).await?;
        let find = |api_key: &str| there.iter().find(|key| key.value.api_key == api_key);
        let foreign = |(_, quota): &(u64, Quota)| {
            find(&quota.api_key).is_some_and(|key| !minds(&self.desk, &self.call.caller, &key.value))
        };
        let (refused, own): (Vec<_>, Vec<_>) = pending.drain(..).partition(|one| foreign(one));
        if self.done.dry_run {
            for (_, quota) in &own {
                match find(&quota.api_key) {
                    None => self.done.created += 1,
                    Some(key) if key.value == *quota => self.done.unchanged += 1,
                    Some(_) => self.done.updated += 1,
                }
            }
        } else {
            // Whoever is bound to a domain writes over nothing that was not seen to be theirs.
            let expected = |quota: &Quota| {
                let version = find(&quota.api_key).map_or(0, |key| key.version);
                self.call.caller.tenant.is_some().then_some(version)
            };
            let puts = own
                .into_iter()
                .map(|(_, quota)| (expected(&quota), quota))
                .map(|(expected, quota)| (quota, expected));
            for written in self.desk.store.put_quotas(&self.who, puts.collect()).await? {
                match written.outcome {
                    Outcome::Created => self.done.created += 1,
                    Outcome::Updated => self.done.updated += 1,
                    Outcome::Unchanged => self.done.unchanged += 1,
                }
            }
        }
        for (line, _) in refused {
            self.fail(line, &Problem::forbidden("another domain has this key").field("api_key"));
        }
        Ok(())
    }
}

fn fingerprint(text: &str) -> u64 {
    let hash = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_ref()[..8]);
    u64::from_be_bytes(first)
}

/// Which column of ours each column of theirs is.
fn columns(header: &[String]) -> Result<Vec<usize>, Problem> {
    let mut found = Vec::new();
    for name in header {
        let name = name.trim_start_matches('\u{feff}').trim();
        let Some(at) = COLUMNS.iter().position(|column| *column == name) else {
            let why = format!("there is no column `{name}`; these are: {}", COLUMNS.join(", "));
            return Err(Problem::invalid("line 1", why));
        };
        if found.contains(&at) {
            return Err(Problem::invalid("line 1", format!("the column `{name}` is there twice")));
        }
        found.push(at);
    }
    if !found.contains(&0) {
        return Err(Problem::invalid("line 1", "the column `api_key` is missing"));
    }
    Ok(found)
}

/// One line of CSV: a key, and one of its overrides.
struct Row {
    /// All but the override.
    key: [Option<String>; 5],
    whitelisted: bool,
    overrides: Vec<OverrideBody>,
}

impl Row {
    fn read(columns: &[usize], cells: Vec<String>) -> Result<Self, Problem> {
        if cells.len() != columns.len() {
            let why = format!("it has {} cells, and there are {} columns", cells.len(), columns.len());
            return Err(Problem::invalid("line", why));
        }
        let mut by_column: [Option<String>; COLUMNS.len()] = Default::default();
        for (at, cell) in columns.iter().zip(cells) {
            by_column[*at] = Some(cell).filter(|cell| !cell.is_empty());
        }
        let [api_key, tier, descriptor, amount, unit, from, until, domain, client, user, whitelisted] =
            by_column;
        if api_key.is_none() {
            return Err(Problem::invalid("api_key", "is missing"));
        }
        let whitelisted = match whitelisted.as_deref() {
            None | Some("false" | "f" | "0") => false,
            Some("true" | "t" | "1") => true,
            Some(_) => return Err(Problem::invalid("whitelisted", "is `true` or `false`")),
        };
        let when = |field: &str, said: Option<String>| {
            said.map(|said| When::read(&said).map_err(|why| Problem::invalid(field, why))).transpose()
        };
        let times = (when("effective_at", from)?, when("expires_at", until)?);
        let overrides = match (descriptor, amount, unit) {
            (None, None, None) => match times {
                (Some(_), _) => return Err(Problem::invalid("effective_at", NO_OVERRIDE)),
                (_, Some(_)) => return Err(Problem::invalid("expires_at", NO_OVERRIDE)),
                (None, None) => Vec::new(),
            },
            (Some(descriptor), Some(amount), Some(unit)) => {
                let number = amount
                    .parse()
                    .map_err(|_| Problem::invalid("requests_per_unit", "is no number up to 4294967295"))?;
                let unit = unit.parse().map_err(|why: String| Problem::invalid("unit", why))?;
                vec![OverrideBody::new(descriptor, number, unit, times)]
            }
            _ => {
                return Err(Problem::invalid(
                    "descriptor",
                    "descriptor, requests_per_unit and unit stand together",
                ));
            }
        };
        Ok(Self { key: [api_key, tier, domain, client, user], whitelisted, overrides })
    }

    /// The same, if it says of its key what the first line about it says, or nothing.
    fn fits(self, first: Option<&Self>) -> Result<Self, Problem> {
        const NAMES: [&str; 5] = ["api_key", "tier", "domain", "client_id", "user_id"];
        let Some(first) = first else { return Ok(self) };
        let differs = |at: &usize| self.key[*at].is_some() && self.key[*at] != first.key[*at];
        match (0..NAMES.len()).find(differs) {
            Some(at) => Err(Problem::invalid(NAMES[at], "is not what the first line about this key says")),
            None if self.whitelisted && !first.whitelisted => {
                Err(Problem::invalid("whitelisted", "is not what the first line about this key says"))
            }
            None => Ok(self),
        }
    }

    fn quota(self) -> Result<Quota, Problem> {
        let [api_key, tier, domain, client_id, user_id] = self.key;
        let api_key = api_key.unwrap_or_default();
        let overrides = super::quotas::overrides(self.overrides, None, None)?;
        Ok(Quota { api_key, domain, tier, client_id, user_id, whitelisted: self.whitelisted, overrides })
    }
}

/// A body, line by line.
struct Lines {
    body: Body,
    buffer: Vec<u8>,
    /// Where the next line begins.
    at: usize,
    read: usize,
    line: u64,
    is_end: bool,
}

impl Lines {
    fn new(body: Body) -> Self {
        Self { body, buffer: Vec::new(), at: 0, read: 0, line: 0, is_end: false }
    }

    async fn next(&mut self) -> Result<Option<(u64, String)>, Problem> {
        let mut looked = self.at;
        loop {
            if let Some(end) =
                self.buffer[looked..].iter().position(|byte| *byte == b'\n').map(|end| looked + end)
            {
                let line = self.text(end)?;
                self.at = end + 1;
                return Ok(Some((self.line, line)));
            }
            if self.is_end {
                if self.at == self.buffer.len() {
                    return Ok(None);
                }
                let line = self.text(self.buffer.len())?;
                self.at = self.buffer.len();
                return Ok(Some((self.line, line)));
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            looked = self.buffer.len();
            if looked > LINE_BYTES {
                return Err(Problem::too_large(format!(
                    "line {} has more than {LINE_BYTES} bytes",
                    self.line + 1
                )));
            }
            self.more().await?;
        }
    }

    fn text(&mut self, end: usize) -> Result<String, Problem> {
        self.line += 1;
        let line = &self.buffer[self.at..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = std::str::from_utf8(line);
        text.map(str::to_owned)
            .map_err(|_| Problem::bad_request("body", format!("line {} is no UTF-8", self.line)))
    }

    async fn more(&mut self) -> Result<(), Problem> {
        match self.body.frame().await {
            None => self.is_end = true,
            Some(Err(error)) => return Err(Problem::bad_request("body", format!("it broke off: {error}"))),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.read += data.len();
                    if self.read > IMPORT_BYTES {
                        return Err(Problem::too_large(format!(
                            "an import has at most {IMPORT_BYTES} bytes"
                        )));
                    }
                    self.buffer.extend_from_slice(&data);
                }
            }
        }
        Ok(())
    }

    /// One record of CSV, which may have several lines. Told with its first.
    async fn record(&mut self) -> Result<Option<(u64, Vec<String>)>, Problem> {
        let Some((line, mut text)) = self.next().await? else { return Ok(None) };
        while text.matches('"').count() % 2 == 1 {
            let Some((_, more)) = self.next().await? else {
                return Err(Problem::bad_request(
                    "body",
                    format!("line {line} has a quotation mark that is not closed"),
                ));
            };
            text.push('\n');
            text.push_str(&more);
            if text.len() > LINE_BYTES {
                return Err(Problem::too_large(format!("line {line} has more than {LINE_BYTES} bytes")));
            }
        }
        Ok(Some((line, cells(&text))))
    }
}

/// The cells of a record. A quotation mark in a cell is written twice.
fn cells(record: &str) -> Vec<String> {
    let (mut all, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut letters = record.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, is_quoted) {
            ('"', true) if letters.peek() == Some(&'"') => {
                letters.next();
                cell.push('"');
            }
            ('"', _) => is_quoted = !is_quoted,
            (',', false) => all.push(std::mem::take(&mut cell)),
            _ => cell.push(letter),
        }
    }
    all.push(cell);
    all
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.into()
    }
}

pub(super) async fn export(desk: Arc<Desk>, call: Call) -> Answer {
    let query = call.query();
    let form = match query.get("format") {
        Some(said) => Form::of(said).ok_or_else(|| Problem::bad_request("format", "is `csv` or `jsonl`"))?,
        None if call.header(&ACCEPT).is_some_and(|said| said.contains("text/csv")) => Form::Csv,
        None => Form::JsonLines,
    };
    let filter = filter(query)?;
    let caller = call.caller.clone();
    // The first page is read here, so that a database that is away is told as such.
    let mut page = desk.store.quotas(&filter, None, Limits::PAGE).await?;
    Ok(streamed(form.content_type(), move |to| async move {
        if form == Form::Csv {
            to.send(format!("{}\n", COLUMNS.join(","))).await?;
        }
        loop {
            let own = page.items.into_iter().filter(|key| minds(&desk, &caller, &key.value));
            let text: String = own.map(|key| line(form, key.value)).collect();
            to.send(text).await?;
            let Some(after) = page.next else { return Ok(()) };
            page = desk.store.quotas(&filter, Some(&after), Limits::PAGE).await?;
        }
    }))
}

fn line(form: Form, quota: Quota) -> String {
    match form {
        Form::JsonLines => {
            let mut line = serde_json::to_string(&QuotaBody::of(quota)).unwrap_or_default();
            line.push('\n');
            line
        }
        Form::Csv => {
            let text = |said: &Option<String>| quoted(said.as_deref().unwrap_or_default());
            let before = format!("{},{}", quoted(&quota.api_key), text(&quota.tier));
            let (domain, client, user) = (text(&quota.domain), text(&quota.client_id), text(&quota.user_id));
            let after = format!("{domain},{client},{user},{}", quota.whitelisted);
            if quota.overrides.is_empty() {
                return format!("{before},,,,,,{after}\n");
            }
            let line = |one: &crate::model::Override| {
                let when = |at: Option<i64>| at.map(|at| When(at).text()).unwrap_or_default();
                let (amount, unit) = (one.requests_per_unit, one.unit.as_str());
                let (from, until) = (when(one.effective_at), when(one.expires_at));
                format!("{before},{},{amount},{unit},{from},{until},{after}\n", quoted(&one.descriptor))
            };
            quota.overrides.iter().map(line).collect()
        }
    }
}

/// Who writes a body that is sent while it is made.
pub(super) struct Pen(mpsc::Sender<Result<Bytes, Error>>);

impl Pen {
    /// Nobody reads on: an error that nobody sees.
    pub(super) async fn send(&self, text: String) -> Result<(), Error> {
        if text.is_empty() {
            return Ok(());
        }
        self.0.send(Ok(text.into())).await.map_err(|_| Error::unavailable("nobody reads on"))
    }
}

/// A body that is sent while it is made, a few pages ahead of who reads it. If it cannot be made to its end, it breaks off, so that nobody
/// takes a part for the whole.
pub(super) fn streamed<F>(content_type: &'static str, write: impl FnOnce(Pen) -> F) -> Response
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let (to, from) = mpsc::channel(2);
    let written = write(Pen(to.clone()));
    tokio::spawn(async move {
        if let Err(error) = written.await {
            // Whoever stopped reading does not hear it.
            let _ = to.send(Err(error)).await;
        }
    });
    let mut response = Response::new(Body::new(Streamed(from)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

struct Streamed(mpsc::Receiver<Result<Bytes, Error>>);

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.0.poll_recv(cx).map(|part| part.map(|part| part.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_read_as_they_are_written() {
        for all in [vec!["a", "", "b c"], vec!["a,b", "say \"hi\"", "two\nlines"], vec![""]] {
            let record: Vec<String> = all.iter().map(|cell| quoted(cell)).collect();
            assert_eq!(cells(&record.join(",")), all);
        }
    }
}
