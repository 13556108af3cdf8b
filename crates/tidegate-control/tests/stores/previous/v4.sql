-- What a program of schema version 4 says to its database. `@time` and `@bytes` stand for a value of each, in the words of the database.
-- Statements are separated by empty lines. Once there is a newer version, this is never changed: programs of this one still run somewhere.

UPDATE control_head SET seq = 1, hash = @bytes WHERE one = 1

SELECT schema_version, seq, hash FROM control_head WHERE one = 1

INSERT INTO control_meta (name, value) VALUES ('of_the_version_before', @bytes)

SELECT value FROM control_meta WHERE name = 'of_the_version_before'

INSERT INTO quota_keys (api_key, domain, tier, client_id, user_id, whitelisted, version, created_at, updated_at)
VALUES ('old', NULL, 'pro', NULL, 'ursula', FALSE, 1, @time, @time)
ON CONFLICT (api_key) DO UPDATE SET domain = excluded.domain, tier = excluded.tier, client_id = excluded.client_id,
user_id = excluded.user_id, whitelisted = excluded.whitelisted, version = excluded.version, updated_at = excluded.updated_at

INSERT INTO quota_overrides (api_key, tier, descriptor, requests_per_unit, unit, effective_at, expires_at, created_at, updated_at)
VALUES ('old', 'pro', 'default', 7, 'minute', @time, NULL, @time, @time), ('old', 'pro', 'endpoint:a', 8, 'hour', NULL, NULL, @time, @time)
ON CONFLICT (api_key, descriptor) DO UPDATE SET tier = excluded.tier, requests_per_unit = excluded.requests_per_unit,
unit = excluded.unit, effective_at = excluded.effective_at, expires_at = excluded.expires_at, updated_at = excluded.updated_at
WHERE (quota_overrides.tier, quota_overrides.requests_per_unit, quota_overrides.unit, quota_overrides.effective_at, quota_overrides.expires_at)
IS DISTINCT FROM (excluded.tier, excluded.requests_per_unit, excluded.unit, excluded.effective_at, excluded.expires_at)

DELETE FROM quota_overrides WHERE (api_key, descriptor) IN (VALUES ('old', 'endpoint:a'))

SELECT k.api_key, k.domain, k.tier, k.client_id, k.user_id, k.whitelisted, k.version, k.created_at, k.updated_at,
o.descriptor, o.requests_per_unit, o.unit, o.effective_at, o.expires_at
FROM (SELECT * FROM quota_keys WHERE api_key IN ('old')) k LEFT JOIN quota_overrides o ON o.api_key = k.api_key
ORDER BY k.api_key, o.descriptor

INSERT INTO quota_keys (api_key, domain, tier, client_id, user_id, whitelisted, version, created_at, updated_at)
VALUES ('gone', NULL, NULL, NULL, NULL, TRUE, 1, @time, @time)

DELETE FROM quota_keys WHERE api_key = 'gone'

INSERT INTO quota_tiers (name, overrides, version, created_at, updated_at) VALUES ('gold', '[]', 1, @time, @time)
ON CONFLICT (name) DO UPDATE SET overrides = excluded.overrides, version = excluded.version, updated_at = excluded.updated_at

SELECT name, overrides, version, created_at, updated_at FROM quota_tiers WHERE name > '' ORDER BY name LIMIT 2

DELETE FROM quota_tiers WHERE name = 'none'

INSERT INTO rules (id, version, document, revision, created_at, updated_at) VALUES ('rule', 1, 'domain: api', 1, @time, @time)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, document = excluded.document, revision = excluded.revision,
updated_at = excluded.updated_at

INSERT INTO rule_versions (id, version, document, revision, at, actor) VALUES ('rule', 1, 'domain: api', 1, @time, 'alice')

SELECT id, version, document, revision, created_at, updated_at FROM rules WHERE id > '' ORDER BY id LIMIT 2

SELECT id, version, document, revision, at, actor FROM rule_versions WHERE id = 'rule' AND version < 9 ORDER BY version DESC LIMIT 2

SELECT max(version) FROM rule_versions WHERE id = 'rule'

DELETE FROM rules WHERE id = 'none'

INSERT INTO rule_states (rule_hash, rule, state, expires_at, version, created_at, updated_at)
VALUES ('hash', 'api|api_key', 'shadow', NULL, 1, @time, @time)
ON CONFLICT (rule_hash) DO UPDATE SET state = excluded.state, expires_at = excluded.expires_at, version = excluded.version,
updated_at = excluded.updated_at

SELECT rule_hash, rule, state, expires_at, version, created_at, updated_at FROM rule_states WHERE rule_hash > '' ORDER BY rule_hash LIMIT 2

DELETE FROM rule_states WHERE rule_hash = 'none'

INSERT INTO tokens (id, prefix, hash, scope, tenant, name, created_at, created_by, expires_at)
VALUES ('token', 'abcdef01', @bytes, 'read', NULL, 'somebody', @time, 'alice', NULL)

SELECT id, prefix, hash, scope, tenant, name, created_at, created_by, expires_at, revoked_at FROM tokens WHERE prefix = 'abcdef01'

UPDATE tokens SET revoked_at = @time WHERE id = 'token'

INSERT INTO audit (seq, at, actor, origin, action, kind, subject, before, after, prev_hash, hash)
VALUES (1, @time, 'alice', '127.0.0.1', 'create', 'quota', 'old', NULL, '{}', @bytes, @bytes)

SELECT seq, at, actor, origin, action, kind, subject, before, after, prev_hash, hash FROM audit
WHERE seq > 0 AND at >= @time AND actor = 'alice' AND kind = 'quota' AND substr(subject, 1, 128) = 'old' ORDER BY seq LIMIT 2

INSERT INTO calendar_usage (key, period_start, used, given_back, updated_at)
VALUES ('00000000000000000000000000000001', 1, 2, 3, @time)
ON CONFLICT (key, period_start) DO UPDATE SET used = excluded.used, given_back = excluded.given_back, updated_at = excluded.updated_at
WHERE calendar_usage.used <> excluded.used AND calendar_usage.used <= excluded.used + excluded.given_back
AND calendar_usage.not_before <= excluded.updated_at

INSERT INTO calendar_usage (key, period_start, used, updated_at, not_before)
VALUES ('00000000000000000000000000000002', 1, 0, @time, @time)
ON CONFLICT (key, period_start) DO UPDATE SET used = 0, updated_at = excluded.updated_at, not_before = excluded.not_before

SELECT key, period_start, used FROM calendar_usage WHERE key IN ('00000000000000000000000000000001') ORDER BY key, period_start

SELECT key, period_start, used FROM calendar_usage WHERE (key, period_start) > ('', 0) ORDER BY key, period_start LIMIT 2

DELETE FROM calendar_usage WHERE period_start < 1
