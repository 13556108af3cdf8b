//! All that is kept, as lines of JSON that either database can be filled from: a header, a line for each row, and a trailer by which a
//! backup that is cut short or changed is known.
//!
//! A backup holds hashes of tokens and the key of these hashes: it is a secret.

use std::collections::BTreeMap;
use std::io::BufRead;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::audit::{AuditEntry, Chain, GENESIS};
use crate::audit_line::{AuditLine, unhex};
use crate::error::{Error, Result};
use crate::model::{
    self, Head, QuotaKey, Revision, RuleDocument, RuleState, RuleVersion, Stored, Tier, Token, Usage,
};
use crate::store::{BackupPages, SCHEMA_VERSION, hex};

/// The form of the lines. A later one has another number.
const FORMAT: u32 = 1;
/// The longest line: a rule's document of a megabyte, written as a text in JSON.
const LINE_MAX: u64 = 16 << 20;

/// One line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Row {
    /// The first.
    TidegateBackup(Header),
    /// Something that the control plane remembers of itself: the key of tokens' hashes.
    Meta {
        name: String,
        value: String,
    },
    Tier(Stored<Tier>),
    Rule(RuleDocument),
    RuleVersion(RuleVersion),
    RuleState(Stored<RuleState>),
    Quota(QuotaKey),
    Token(TokenRow),
    Usage {
        key: String,
        period_start: i64,
        used: i64,
    },
    Audit(AuditLine),
    /// The last.
    End {
        rows: u64,
        sha256: String,
    },
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Header {
    format: u32,
    schema_version: u32,
    revision: Revision,
    /// The hash of the last row of the audit trail.
    head: String,
}

/// A token with its hash, which nothing else tells.
#[derive(Serialize, Deserialize)]
pub(crate) struct TokenRow {
    #[serde(flatten)]
    token: Token,
    hash: String,
}

/// A row that can be stored.
pub(crate) enum Kept {
    Meta(String, Vec<u8>),
    Tier(Stored<Tier>),
    Rule(RuleDocument),
    RuleVersion(RuleVersion),
    RuleState(Stored<RuleState>),
    Quota(QuotaKey),
    Token(Token),
    Usage(Usage),
    Audit(AuditEntry),
}

impl Kept {
    fn row(self) -> Row {
        match self {
            Self::Meta(name, value) => Row::Meta { name, value: hex(&value) },
            Self::Tier(tier) => Row::Tier(tier),
            Self::Rule(rule) => Row::Rule(rule),
            Self::RuleVersion(version) => Row::RuleVersion(version),
            Self::RuleState(state) => Row::RuleState(state),
            Self::Quota(quota) => Row::Quota(quota),
            Self::Token(token) => Row::Token(TokenRow { hash: hex(&token.hash), token }),
            Self::Usage(Usage { key, period_start, used }) => {
                Row::Usage { key: format!("{key:032x}"), period_start, used }
            }
            Self::Audit(entry) => Row::Audit(AuditLine::of(entry)),
        }
    }

    /// As its lines begin.
    fn kind(&self) -> &'static str {
        match self {
            Self::Meta(..) => "meta",
            Self::Tier(_) => "tier",
            Self::Rule(_) => "rule",
            Self::RuleVersion(_) => "rule_version",
            Self::RuleState(_) => "rule_state",
            Self::Quota(_) => "quota",
            Self::Token(_) => "token",
            Self::Usage(_) => "usage",
            Self::Audit(_) => "audit",
        }
    }

    /// What a line says, if it can be kept.
    fn of(row: Row) -> Result<Self> {
        let no_number = |what: &str| Error::invalid(what.to_owned(), "is no number in hexadecimal digits");
        Ok(match row {
            Row::Meta { name, value } => {
                let bytes = unhex::<32>(&value).ok_or_else(|| no_number("value"))?;
                Self::Meta(name, bytes.to_vec())
            }
            Row::Tier(tier) => Self::Tier(Stored { value: tier.value.checked()?, ..tier }),
            Row::Rule(rule) => {
                model::rule_id(&rule.id)?;
                model::document(&rule.document)?;
                Self::Rule(rule)
            }
            Row::RuleVersion(version) => {
                model::rule_id(&version.id)?;
                version.document.as_deref().map(model::document).transpose()?;
                Self::RuleVersion(version)
            }
            Row::RuleState(state) => {
                state.value.check()?;
                Self::RuleState(state)
            }
            Row::Quota(quota) => Self::Quota(Stored { value: quota.value.checked()?, ..quota }),
            Row::Token(TokenRow { token, hash }) => {
                let hash = unhex(&hash).ok_or_else(|| no_number("hash"))?;
                Self::Token(Token { hash, ..token })
            }
            Row::Usage { key, period_start, used } => {
                let bytes: [u8; 16] = unhex(&key).ok_or_else(|| no_number("key"))?;
                Self::Usage(Usage { key: u128::from_be_bytes(bytes), period_start, used })
            }
            Row::Audit(line) => Self::Audit(line.entry().map_err(|why| Error::invalid("audit", why))?),
            Row::TidegateBackup(_) | Row::End { .. } => {
                return Err(Error::invalid("backup", "a header or a trailer stands among the rows"));
            }
        })
    }
}

/// What a backup held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackedUp {
    /// Rows of all kinds.
    pub rows: u64,
    /// Where the audit trail ended.
    pub head: Head,
}

/// What a restore did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restored {
    /// What the backup held.
    pub held: BackedUp,
    /// Where the audit trail ends now: with the row about the restore.
    pub head: Head,
}

/// A backup that is being made: all of one revision, whatever is changed meanwhile.
pub struct Backup {
    pages: BackupPages,
    hash: Context,
    rows: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Begun,
    Rows,
    Ended,
}

impl Backup {
    pub(crate) fn new(pages: BackupPages) -> Self {
        Self { pages, hash: Context::new(&SHA256), rows: 0, state: State::Begun }
    }

    /// What it holds so far; all, after the last lines.
    pub fn so_far(&self) -> BackedUp {
        BackedUp { rows: self.rows, head: self.pages.head() }
    }

    /// The next lines; none after the trailer.
    pub async fn next(&mut self) -> Result<Option<String>> {
        let mut lines = String::new();
        match self.state {
            State::Ended => return Ok(None),
            State::Begun => {
                let head = self.pages.head();
                let header = Header {
                    format: FORMAT,
                    schema_version: SCHEMA_VERSION,
                    revision: head.seq,
                    head: hex(&head.hash),
                };
                add(&mut lines, &Row::TidegateBackup(header))?;
                self.state = State::Rows;
            }
            State::Rows => match self.pages.next().await? {
                Some(page) => {
                    self.rows += page.len() as u64;
                    for kept in page {
                        add(&mut lines, &kept.row())?;
                    }
                }
                None => {
                    let sha256 = hex(self.hash.clone().finish().as_ref());
                    add(&mut lines, &Row::End { rows: self.rows, sha256 })?;
                    self.state = State::Ended;
                }
            },
        }
        self.hash.update(lines.as_bytes());
        Ok(Some(lines))
    }
}

fn add(to: &mut String, row: &Row) -> Result<()> {
    to.push_str(&crate::store::json(row)?);
    to.push('\n');
    Ok(())
}

/// A backup that is being read. Nothing of it may be taken for good before its trailer was read.
pub(crate) struct Lines<R> {
    from: R,
    hash: Context,
    number: u64,
    head: Head,
    chain: Chain,
    rows: u64,
    /// How many of each kind.
    kinds: BTreeMap<&'static str, u64>,
    /// Of the whole, once the trailer was read.
    sha256: String,
    is_over: bool,
}

impl<R: BufRead> Lines<R> {
    /// Reads the header.
    pub(crate) fn open(mut from: R) -> Result<Self> {
        let line = read_line(&mut from, 1)?;
        let Ok(Row::TidegateBackup(header)) = serde_json::from_slice(&line) else {
            return Err(Error::invalid("line 1", "is not the header of a backup of Tidegate"));
        };
        if header.format != FORMAT || header.schema_version > SCHEMA_VERSION {
            let why = "was made by a newer Tidegate: restore it with that";
            return Err(Error::invalid("the backup", why));
        }
        let hash = unhex(&header.head).ok_or_else(|| Error::invalid("line 1", "its head is no hash"))?;
        let mut context = Context::new(&SHA256);
        context.update(&line);
        let head = Head { seq: header.revision, hash };
        let chain = Chain::after(GENESIS);
        let (kinds, sha256) = (BTreeMap::new(), String::new());
        Ok(Self { from, hash: context, number: 1, head, chain, rows: 0, kinds, sha256, is_over: false })
    }

    /// The next rows, so many and so many bytes; none once all were read and found to be right.
    pub(crate) fn next(&mut self, rows_max: usize, bytes_max: usize) -> Result<Option<Vec<Kept>>> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while !self.is_over && rows.len() < rows_max && bytes < bytes_max {
            self.number += 1;
            let line = read_line(&mut self.from, self.number)?;
            bytes += line.len();
            let here = |why: String| Error::invalid(format!("line {}", self.number), why);
            let row = serde_json::from_slice(&line).map_err(|error| here(error.to_string()))?;
            if let Row::End { rows, sha256 } = row {
                self.end(rows, &sha256)?;
                break;
            }
            self.hash.update(&line);
            self.rows += 1;
            let kept = Kept::of(row).map_err(|error| here(error.to_string()))?;
            *self.kinds.entry(kept.kind()).or_default() += 1;
            if let Kept::Audit(entry) = &kept {
                self.chain.verify(entry).map_err(|broken| here(broken.to_string()))?;
            }
            rows.push(kept);
        }
        Ok((!rows.is_empty()).then_some(rows))
    }

    fn end(&mut self, rows: u64, sha256: &str) -> Result<()> {
        let wrong = |why: &str| Err(Error::invalid("the backup", why));
        if rows != self.rows {
            return wrong("has not as many rows as were written");
        }
        if sha256 != hex(self.hash.clone().finish().as_ref()) {
            return wrong("is not as it was written: its checksum is another");
        }
        if self.chain.last() != self.head {
            return wrong("does not hold the audit trail to its end");
        }
        self.sha256 = sha256.to_owned();
        self.is_over = true;
        Ok(())
    }

    pub(crate) fn held(&self) -> BackedUp {
        BackedUp { rows: self.rows, head: self.head }
    }

    /// What the audit trail is told of a restore: the trail that was there before, if there was one, and what came in its place.
    pub(crate) fn told(&self, before: Head) -> Result<(Option<String>, String)> {
        #[derive(Serialize)]
        struct Trail {
            revision: Revision,
            head: String,
        }
        #[derive(Serialize)]
        struct Told<'a> {
            #[serde(flatten)]
            trail: Trail,
            sha256: &'a str,
            rows: &'a BTreeMap<&'static str, u64>,
        }
        let trail = |head: Head| Trail { revision: head.seq, head: hex(&head.hash) };
        let before = (before.seq > 0).then(|| crate::store::json(&trail(before))).transpose()?;
        let told = Told { trail: trail(self.head), sha256: &self.sha256, rows: &self.kinds };
        Ok((before, crate::store::json(&told)?))
    }
}

/// A whole line, with its end.
fn read_line(from: &mut impl BufRead, number: u64) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    let read = std::io::Read::take(&mut *from, LINE_MAX).read_until(b'\n', &mut line);
    read.map_err(|error| Error::invalid("the backup", error.to_string()))?;
    match line.last() {
        Some(b'\n') => Ok(line),
        _ if line.len() as u64 >= LINE_MAX => Err(Error::invalid(format!("line {number}"), "is too long")),
        _ => Err(Error::invalid(
            format!("line {number}"),
            "is where the backup ends, without its trailer: it was cut short",
        )),
    }
}
