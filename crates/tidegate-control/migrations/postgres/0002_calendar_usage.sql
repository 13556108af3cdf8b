CREATE TABLE calendar_usage (
    key TEXT COLLATE "C" NOT NULL,
    period_start BIGINT NOT NULL,
    used BIGINT NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (key, period_start)
);

CREATE INDEX calendar_usage_period ON calendar_usage (period_start);
