CREATE TABLE calendar_usage (
    key TEXT NOT NULL,
    period_start INTEGER NOT NULL,
    used INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (key, period_start)
) STRICT, WITHOUT ROWID;

CREATE INDEX calendar_usage_period ON calendar_usage (period_start);
