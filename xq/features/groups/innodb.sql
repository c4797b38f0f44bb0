The table of groups.

--: group
CREATE TABLE IF NOT EXISTS {name}
    (name {text} PRIMARY KEY, total BIGINT NOT NULL, killed BIGINT NOT NULL, opened DOUBLE NOT NULL, done DOUBLE,
    sealed INT NOT NULL, runs INT NOT NULL, then_sql LONGTEXT, KEY (done, name)){engine};
