The tables of a queue beside the application's. {keys} are the columns of its key, {parts} the same as k0, k1 .. Those
with columns of the application's table are created as a query of it, so that these have its types.

--: count
CREATE TABLE IF NOT EXISTS {name}
    (id BIGINT AUTO_INCREMENT PRIMARY KEY, tube {text} NOT NULL, source {letter} NOT NULL, target {letter} NOT NULL,
    n BIGINT NOT NULL){engine};

--: wait
CREATE TABLE IF NOT EXISTS {name}
    (waiter {token} DEFAULT '', session {uuid} DEFAULT '', since DOUBLE, event {text}, target {letter},
    PRIMARY KEY ({parts}, waiter)){engine}
    AS SELECT {keys_as_parts} FROM {table} LIMIT 0;

--: history
CREATE TABLE IF NOT EXISTS {name}
    (`id` BIGINT AUTO_INCREMENT PRIMARY KEY, `at_us` BIGINT, `key` {text}, `tube` {text}, `source` {text},
    `target` {text}, `event` {text}, `owner` {text}, `attempt` BIGINT, `actor` {text}, `reason` {reason}){engine};

--: limit
-- A value's key is its digest.
CREATE TABLE IF NOT EXISTS {name}
    (feature {text}, value {text}, is_set INT, label LONGTEXT, n BIGINT NOT NULL, slack BIGINT NOT NULL,
    given LONGTEXT NOT NULL, since_us BIGINT, actor {text}, reason {reason},
    PRIMARY KEY (feature, value, is_set)){engine};
