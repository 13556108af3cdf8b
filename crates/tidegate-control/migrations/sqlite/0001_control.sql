-- Statements are separated by empty lines. Times are microseconds since 1970.

CREATE TABLE control_head (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    schema_version INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;

INSERT INTO control_head (one, schema_version, seq, hash) VALUES (1, 0, 0, zeroblob(32));

CREATE TABLE control_meta (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;

CREATE TABLE quota_keys (
    api_key TEXT PRIMARY KEY,
    domain TEXT,
    tier TEXT,
    client_id TEXT,
    user_id TEXT,
    whitelisted INTEGER NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE INDEX quota_keys_tier ON quota_keys (tier, api_key);

CREATE TABLE quota_overrides (
    id TEXT PRIMARY KEY DEFAULT (
        lower(hex(randomblob(4))) || '-' || lower(hex(randomblob(2))) || '-4' || substr(lower(hex(randomblob(2))), 2) || '-'
        || substr('89ab', 1 + (random() & 3), 1) || substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6)))
    ),
    api_key TEXT NOT NULL REFERENCES quota_keys (api_key) ON DELETE CASCADE,
    tier TEXT,
    descriptor TEXT NOT NULL,
    requests_per_unit INTEGER NOT NULL CHECK (requests_per_unit BETWEEN 0 AND 4294967295),
    unit TEXT NOT NULL CHECK (unit IN ('second', 'minute', 'hour', 'day', 'week', 'month', 'year')),
    effective_at INTEGER,
    expires_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (api_key, descriptor)
) STRICT;

CREATE INDEX quota_overrides_tier ON quota_overrides (tier);

CREATE INDEX quota_overrides_expiry ON quota_overrides (api_key, expires_at);

CREATE TABLE quota_tiers (
    name TEXT PRIMARY KEY,
    overrides TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE rules (
    id TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    document TEXT NOT NULL,
    revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE rule_versions (
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    document TEXT,
    revision INTEGER NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    PRIMARY KEY (id, version)
) STRICT;

CREATE TABLE rule_states (
    rule_hash TEXT PRIMARY KEY,
    rule TEXT NOT NULL,
    state TEXT NOT NULL,
    expires_at INTEGER,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    prefix TEXT NOT NULL UNIQUE,
    hash BLOB NOT NULL,
    scope TEXT NOT NULL,
    tenant TEXT,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT;

CREATE TABLE audit (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    origin TEXT NOT NULL,
    action TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    before TEXT,
    after TEXT,
    prev_hash BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;

-- Subjects may be longer than an index of PostgreSQL holds.
CREATE INDEX audit_subject ON audit (kind, substr(subject, 1, 128), seq);

CREATE INDEX audit_actor ON audit (actor, seq);

CREATE INDEX audit_at ON audit (at);

CREATE TRIGGER audit_is_not_updated BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit trail is only added to'); END;

CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit trail is only added to'); END;

-- INSERT OR REPLACE deletes without asking the trigger above.
CREATE TRIGGER audit_is_not_replaced BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'the audit trail is only added to'); END;
