-- Statements are separated by empty lines. Text is ordered by its bytes, as in SQLite, whatever the language of the database.

CREATE TABLE control_head (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    schema_version BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    hash BYTEA NOT NULL
);

INSERT INTO control_head (one, schema_version, seq, hash) VALUES (1, 0, 0, decode(repeat('00', 32), 'hex'));

CREATE TABLE control_meta (
    name TEXT COLLATE "C" PRIMARY KEY,
    value BYTEA NOT NULL
);

CREATE TABLE quota_keys (
    api_key TEXT COLLATE "C" PRIMARY KEY,
    domain TEXT COLLATE "C",
    tier TEXT COLLATE "C",
    client_id TEXT COLLATE "C",
    user_id TEXT COLLATE "C",
    whitelisted BOOLEAN NOT NULL,
    version BIGINT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
);

CREATE INDEX quota_keys_tier ON quota_keys (tier, api_key);

CREATE TABLE quota_overrides (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    api_key TEXT COLLATE "C" NOT NULL REFERENCES quota_keys (api_key) ON DELETE CASCADE,
    tier TEXT COLLATE "C",
    descriptor TEXT COLLATE "C" NOT NULL,
    requests_per_unit BIGINT NOT NULL CHECK (requests_per_unit BETWEEN 0 AND 4294967295),
    unit TEXT COLLATE "C" NOT NULL CHECK (unit IN ('second', 'minute', 'hour', 'day', 'week', 'month', 'year')),
    effective_at TIMESTAMPTZ,
    expires_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL,
    UNIQUE (api_key, descriptor)
);

CREATE INDEX quota_overrides_tier ON quota_overrides (tier);

CREATE INDEX quota_overrides_expiry ON quota_overrides (api_key, expires_at);

CREATE TABLE quota_tiers (
    name TEXT COLLATE "C" PRIMARY KEY,
    overrides TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE rules (
    id TEXT COLLATE "C" PRIMARY KEY,
    version BIGINT NOT NULL,
    document TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE rule_versions (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    document TEXT COLLATE "C",
    revision BIGINT NOT NULL,
    at TIMESTAMPTZ NOT NULL,
    actor TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (id, version)
);

CREATE TABLE rule_states (
    rule_hash TEXT COLLATE "C" PRIMARY KEY,
    rule TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    expires_at TIMESTAMPTZ,
    version BIGINT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE tokens (
    id TEXT COLLATE "C" PRIMARY KEY,
    prefix TEXT COLLATE "C" NOT NULL UNIQUE,
    hash BYTEA NOT NULL,
    scope TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C",
    name TEXT COLLATE "C" NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    expires_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ
);

CREATE TABLE audit (
    seq BIGINT PRIMARY KEY,
    at TIMESTAMPTZ NOT NULL,
    actor TEXT COLLATE "C" NOT NULL,
    origin TEXT COLLATE "C" NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    before TEXT COLLATE "C",
    after TEXT COLLATE "C",
    prev_hash BYTEA NOT NULL,
    hash BYTEA NOT NULL
);

-- Subjects may be longer than an index holds.
CREATE INDEX audit_subject ON audit (kind, substr(subject, 1, 128), seq);

CREATE INDEX audit_actor ON audit (actor, seq);

CREATE INDEX audit_at ON audit (at);

CREATE FUNCTION audit_is_only_added_to() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'the audit trail is only added to'; END $$;

CREATE TRIGGER audit_is_not_changed BEFORE UPDATE OR DELETE ON audit
FOR EACH ROW EXECUTE FUNCTION audit_is_only_added_to();

CREATE TRIGGER audit_is_not_emptied BEFORE TRUNCATE ON audit
FOR EACH STATEMENT EXECUTE FUNCTION audit_is_only_added_to();
