-- What was given back may make a period's count smaller, and what was told before a reset counts for nothing after it.

ALTER TABLE calendar_usage ADD COLUMN given_back INTEGER NOT NULL DEFAULT 0;

ALTER TABLE calendar_usage ADD COLUMN not_before INTEGER NOT NULL DEFAULT 0;
