//! The settings of the control plane, and what a process does.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Chosen, TlsSettings, without_password};
use crate::codes::Code;
use crate::diagnostic::Diagnostic;
use crate::reader::{Reader, Value};

/// The setting that says where it is kept.
pub(super) const DATABASE: &str = "control.database";

/// The setting that says where the audit trail is written to.
const AUDIT_SINK: &str = "control.audit_sink";

/// What a process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// It decides, and has the control plane's API.
    #[default]
    All,
    /// It decides.
    Decide,
    /// It has the API.
    Control,
}

impl Role {
    pub(super) fn named(name: &str) -> Self {
        match name {
            "decide" => Self::Decide,
            "control" => Self::Control,
            _ => Self::All,
        }
    }

    /// Is it asked for decisions?
    pub fn decides(self) -> bool {
        self != Self::Control
    }

    /// Has it the control plane's API?
    pub fn controls(self) -> bool {
        self != Self::Decide
    }
}

/// Where the audit trail is written to as well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuditSinkSettings {
    /// To standard output.
    Stdout,
    /// To a file.
    File(PathBuf),
}

/// Tiers, quotas of single callers, rules by API: where they are kept, and where they are changed.
#[derive(Clone, Default)]
pub struct ControlSettings {
    /// Is there any of it?
    pub enabled: bool,
    /// Where the API listens.
    pub listen: Option<SocketAddr>,
    /// Did anybody say where?
    pub listen_said: bool,
    /// The database; none is a file of SQLite. There may be a password in it.
    pub database: Option<String>,
    /// The file with its password.
    pub password_file: Option<PathBuf>,
    /// Are edits told over the store of counters too?
    pub publish: bool,
    /// May others reach it in plain text?
    pub allow_plain: bool,
    /// The files of its certificates.
    pub tls: Option<TlsSettings>,
    /// Where the audit trail is written to as well.
    pub audit_sink: Option<AuditSinkSettings>,
}

impl fmt::Debug for ControlSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.database.as_deref().map(without_password);
        out.debug_struct("ControlSettings")
            .field("enabled", &self.enabled)
            .field("listen", &self.listen)
            .field("database", &database)
            .finish_non_exhaustive()
    }
}

impl Chosen<'_> {
    pub(super) fn control(&self) -> ControlSettings {
        let tls = self.path("control.tls_certificate").zip(self.path("control.tls_key"));
        let audit_sink = self.path(AUDIT_SINK).map(|path| match self.text(AUDIT_SINK) {
            Some("stdout") => AuditSinkSettings::Stdout,
            _ => AuditSinkSettings::File(path),
        });
        ControlSettings {
            audit_sink,
            enabled: self.flag("control.enabled"),
            listen: self.get("control.listen").and_then(Value::socket).map(|socket| socket.value),
            listen_said: self.is_said("control.listen"),
            database: self.text(DATABASE).map(String::from),
            password_file: self.path("control.password_file"),
            publish: self.flag("control.publish"),
            allow_plain: self.flag("control.allow_plain"),
            tls: tls.map(|(certificate, key)| TlsSettings {
                certificate,
                key,
                client_roots: self.path("control.tls_client_roots"),
            }),
        }
    }

    /// Whoever can read a token on its way can change every limit.
    pub(super) fn check_control(&self, reader: &Reader) {
        let control = self.control();
        let said = self.get("control.listen").filter(|_| control.enabled);
        let public = control.listen.is_some_and(|address| !address.ip().is_loopback());
        if let Some(listen) = said.filter(|_| public && control.tls.is_none() && !control.allow_plain) {
            let message = "the control plane would be reached from other machines without TLS";
            let trouble =
                Diagnostic::new(Code::PlainControl, listen.span(), message).label("not this machine alone");
            reader.say(trouble.help(
                "set `control.tls_certificate` and `control.tls_key`, or `control.allow_plain` where something else encrypts",
            ));
        }
        let Some(url) = self.get(DATABASE) else { return };
        let scheme = self.text(DATABASE).and_then(|text| text.split_once("://")).map(|(scheme, _)| scheme);
        if !matches!(scheme, Some("postgres" | "postgresql")) {
            let trouble = Diagnostic::new(
                Code::BadDatabase,
                url.span(),
                "`control.database` is no database that is known here",
            );
            reader.say(trouble.label("what is it?").help(
                "write `postgres://user@host:5432/name`, or leave it out: then it is a file of SQLite in `node.data`",
            ));
        }
    }
}
