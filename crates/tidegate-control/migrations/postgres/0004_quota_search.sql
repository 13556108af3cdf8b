-- Callers are searched by who is behind them, and exceptions by when they end.

CREATE INDEX quota_keys_user ON quota_keys (user_id, api_key) WHERE user_id IS NOT NULL;

CREATE INDEX quota_keys_client ON quota_keys (client_id, api_key) WHERE client_id IS NOT NULL;

CREATE INDEX quota_overrides_end ON quota_overrides (expires_at, api_key) WHERE expires_at IS NOT NULL;
