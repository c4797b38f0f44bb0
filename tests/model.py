"""A queue in a dictionary: what the tests compare the real one with, after every call.

It says what a queue does in as few lines as that takes, and shares nothing with xq but the names of the errors.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Row = dict[str, Any]  # the fields of a task, its letter as `state`, and who took it: `holder` (session, take, since)
Options = Mapping[str, Any]

TO_READY = ("put", "release", "dig", "snatch", "restart", "wake", "retry")  # to R, or to W with delay
BROUGHT = {"W": "delayed", "B": "buried", "Z": "zombie", "D": "keep", "P": "nap"}  # state -> the feature it comes with
TIMED = {"W": "delayed", "R": "ttl", "T": "ttr", "Z": "zombie", "P": "nap"}  # state -> the feature that times it
FRESH = {"state": "X", "size": 0, "priority": 0, "attempts": 0}
FRESH |= dict.fromkeys(("name", "tube", "ttl", "ttr", "job", "utube", "runat", "deadline", "holder"))


class Refused(Exception):
    """The call fails with one of these errors, and changes nothing."""

    def __init__(self, *errors: str, state: str = "") -> None:
        self.errors, self.state = errors, state


class Model:
    """`features` and `roles` as for upgrade. The feature "nap" is a user's own: R -nap-> P -wake-> R, T -retry-> R."""

    def __init__(self, features: Mapping[str, Any], roles: Sequence[str], tubes: Sequence[str], now: float) -> None:
        self.on = {name: value for name, value in features.items() if value not in (None, False)}
        self.roles, self.tubes, self.now, self.takes = tuple(roles), tuple(tubes), now, 0
        self.rows: dict[Any, Row] = {}
        self.seen: Counter[tuple[str, str]] = Counter()  # (tube, "R-T"); tube "" is all together
        self.sessions: dict[str, float] = {}
        self.states = "RT" + "".join(state for state, feature in BROUGHT.items() if feature in self.on)
        self.most = int(self.on.get("utube", 0))  # tasks of a utube that are taken
        self.alone = "WRT" if self.on.get("unique") is True else self.on.get("unique", "")

    def snapshot(self) -> Any:
        return copy.deepcopy((self.rows, self.seen, self.sessions))

    def restore(self, snapshot: Any) -> None:
        self.rows, self.seen, self.sessions = copy.deepcopy(snapshot)

    # writing rows, and counting it, whoever writes

    def write(self, key: Any, row: Row | None) -> None:
        old = self.rows.get(key)
        source, target = self.state(old), self.state(row)
        if row and any(at != key for at in self.holders(target, row["job"])):
            raise Refused("Duplicate", "IntegrityError")
        if row and target == "T" and row["utube"] is not None and self.most:
            others = self.taken(row["utube"]) - (source == "T" and old is not None and old["utube"] == row["utube"])
            if others >= self.most:
                raise Refused("IntegrityError", "OperationalError")
        left, entered = old and old["tube"], row and row["tube"]
        stays = old is not None and row is not None and left == entered
        self.count("", source, target)
        if stays:
            self.count(left, source, target)
        elif source != "X":
            self.count(left, source, "X" if target == "X" else "S")
        if not stays and target != "X":
            self.count(entered, "X" if source == "X" else "S", target)
        if row is None:
            del self.rows[key]
        else:
            self.rows[key] = row

    def state(self, row: Row | None) -> str:
        """The letter of a row; X also when it is not the queue's."""
        return row["state"] if row and row["state"] in self.states else "X"

    def count(self, tube: Any, source: str, target: str) -> None:
        if source != target and (tube == "" or tube in self.tubes):
            self.seen[tube, f"{source}-{target}"] += 1

    def holders(self, state: str, job: str | None) -> list[Any]:
        """The keys of the tasks that a unique value meets when it is to be in a state."""
        if job is None or state not in self.alone:
            return []
        return [key for key, row in self.rows.items() if row["job"] == job and self.state(row) in self.alone]

    def plain(self, key: Any, values: Row) -> None:
        """Another program's UPDATE, which knows nothing of owners."""
        source, target = self.state(self.rows[key]), self.state(self.rows[key] | values)
        if source != target and (source == "T" or (source in "DZ" and target != "X")):
            if self.on.get("guard") is True:
                raise Refused("IntegrityError", "OperationalError")
            self.seen["by others", f"{source}-{target}"] += 1
        timeless = dict.fromkeys({"runat", "deadline"}.intersection(self.roles)) if source != target == "X" else {}
        self.write(key, self.rows[key] | values | timeless)

    def enter(self, key: Any, row: Row, to: str, given: Options) -> Row:
        """What a state that is entered writes, whatever the road that led there. Returns the task as it then is."""
        source, row = row["state"], dict(row)
        if to == "X":
            self.write(key, None)
            return row
        for option, features in {"ttl": {"ttl", "lifetime"}, "ttr": {"ttr"}}.items():
            if option in given and option in self.roles and to in "RW" and features & self.on.keys():
                row[option] = given[option]
        if "runat" in self.roles:
            row["runat"] = after(self.now, self.lasts(row, to, given))
        if "deadline" in self.roles:
            delay = given.get("delay", 0) if to == "W" else 0
            if "lifetime" not in self.on or to in "DZ":
                row["deadline"] = None
            elif "ttl" in given or source in "XDZ":
                row["deadline"] = after(self.now + delay, self.seconds(row, "ttl", "lifetime", given))
            else:
                row["deadline"] = after(row["deadline"], delay)
        row |= {"state": to, "holder": row["holder"] if to == "T" else None}
        self.write(key, row)
        return row

    def lasts(self, row: Row, state: str, given: Options) -> float | None:
        """For how many seconds a task stays in a state; None: for ever."""
        if state in ("R", "T") and TIMED[state] in self.on:
            return self.seconds(row, TIMED[state], TIMED[state], given)
        if state == "Z":
            return finite(given.get("delay", None if self.on["zombie"] is True else self.on["zombie"]))
        return {"W": given.get("delay"), "P": finite(given.get("nap", 30.0))}.get(state)

    def seconds(self, row: Row, option: str, feature: str, given: Options) -> float | None:
        """What the call brings, else what the task remembers, else the default."""
        default = None if self.on[feature] is True else self.on[feature]
        own = row[option] if option in self.roles else None
        return finite(given.get(option, default if own is None else own))

    # what is refused before anything is looked at

    def problems(self, event: str, options: Options, to: str = "") -> set[str]:
        found = set() if self.leaves(event) else {"FeatureOff"}
        target = self.goes(event, options, to)
        if event == "switch" and (to not in self.states or to == "T" or (to == "W" and "delay" not in options)):
            found.add("BadValue")
        users = {"BadType"} if event in ("nap", "wake", "retry") and "FeatureOff" not in found else set()
        for name, value in options.items():
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                found.add("BadType")
            elif not 0 <= value <= (1e10 if name == "increment" or (name, target) == ("delay", "W") else math.inf):
                found.add("BadValue")
            found |= (off := self.off(event, name, target)) | (users if off else set())
        return found

    def off(self, event: str, name: str, target: str) -> set[str]:
        """What is wrong with an option, whatever its value."""
        if name == "delay" and event == "switch":
            return set() if target in ("W", "Z") else {"BadValue", "FeatureOff"}
        remembered = (
            name in self.roles or event == "take" or (name == "ttl" and ("lifetime" in self.on or target == "R"))
        )
        needs = {"ttl": {"ttl", "lifetime"}, "ttr": {"ttr"}, "delay": {"zombie" if event == "ack" else "delayed"}}
        on = name not in needs or (needs[name] & self.on.keys() and (remembered or name == "delay"))
        return set() if on else {"FeatureOff"}

    def leaves(self, event: str) -> str:
        """The states that an event moves."""
        taken = {"ack", "release", "snatch", "retry"}
        buried = {True: "T", "any": self.states}.get(self.on.get("buried", ""), "")
        touch = "T" * bool({"ttr", "lifetime"} & self.on.keys()) + "R" * ("ttl" in self.on)
        states = {"put": "X", "take": "R", "bury": buried, "dig": "B", "restart": "WZD", "nap": "R", "wake": "P"}
        states |= {"switch": self.states.replace("T", ""), "kill": self.states, "touch": touch}
        if event in ("nap", "wake", "retry") and "nap" not in self.on:
            return ""
        return "".join(s for s in states.get(event, "T" if event in taken else "") if s in self.states + "X")

    def goes(self, event: str, options: Options, to: str = "") -> str:
        if event in TO_READY:
            return "W" if "delay" in options else "R"
        done = "D" if "keep" in self.on else "Z" if "zombie" in self.on else "X"
        return {"ack": done, "bury": "B", "kill": "X", "take": "T", "nap": "P", "switch": to}.get(event, "")

    # calls

    def find(self, event: str, key: Any, token: int | None, session: str) -> Row:
        row = self.rows.get(key)
        if row is None or self.state(row) == "X":
            raise Refused("NotFound")
        if row["state"] not in self.leaves(event):
            raise Refused("WrongState", state=row["state"])
        anyones = "not_check_session" in self.on or (event == "bury" and self.on["buried"] == "any")
        if row["state"] == "T" and event in ("ack", "release", "bury", "touch", "retry") and not anyones:
            if row["holder"] is None or row["holder"][0] != session or token not in (None, row["holder"][1]):
                raise Refused("NotOwner")
        return row

    def move(
        self, event: str, key: Any, token: int | None, session: str, options: Options, update: Row, to: str = ""
    ) -> Row:
        if problems := self.problems(event, options, to):
            raise Refused(*problems)
        row = self.find(event, key, token, session) | update
        if event != "touch":
            return self.enter(key, row, self.goes(event, options, to), options)
        if TIMED[row["state"]] in self.on:
            row["runat"] = (self.now if row["runat"] is None else row["runat"]) + options["increment"]
        if "lifetime" in self.on:
            row["deadline"] = after(row["deadline"], options["increment"])
        self.write(key, row)
        return row

    def oldest(self, state: str, tube: str | None = None) -> list[Any]:
        """The keys of the tasks in a state, lower priority first, none before any."""
        found = {key: row for key, row in self.rows.items() if row["state"] == state and tube in (None, row["tube"])}
        first = {key: (row["priority"] is not None, row["priority"] or 0) for key, row in found.items()}
        return sorted(found, key=lambda key: (first[key] if "priority" in self.roles else (), key))

    def taken(self, utube: Any) -> int:
        return sum(self.state(row) == "T" and row["utube"] == utube for row in self.rows.values())

    def next_ready(self, tube: str | None) -> list[Any]:
        """The keys of the tasks that may be taken: of each utube only the first, if not too many are."""
        found, seen = [], set()
        for key in self.oldest("R"):
            utube = self.rows[key]["utube"] if self.most else None
            if utube is None or (utube not in seen and self.taken(utube) < self.most):
                found.append(key)
            seen.add(utube)
        return [key for key in found if tube in (None, self.rows[key]["tube"])]

    def take(self, session: str, n: int, options: Options, tube: str | None = None) -> list[tuple[Any, Row]]:
        problems = self.problems("take", options) | ({"FeatureOff"} if tube and "tube" not in self.roles else set())
        if problems:
            raise Refused(*problems)
        if n == 0:
            return []
        self.sessions.setdefault(session, self.now)
        self.sweep()
        self.takes += 1
        taken = []
        for key in self.next_ready(tube)[:n]:
            row = self.rows[key] | {"holder": (session, self.takes, self.now)}
            row["attempts"] = (row["attempts"] or 0) + 1 if "attempts" in self.roles else row["attempts"]
            taken.append((key, self.enter(key, row, "T", options)))
        return taken

    def put(
        self, keys: list[Any], tasks: list[Row], options: Options, on_conflict: str | None
    ) -> list[tuple[Any, Row]]:
        problems = self.problems("put", options)
        problems |= {"FeatureOff"} if on_conflict is not None and not self.alone else set()
        roles = [role for role in ("ttl", "ttr") if role in self.roles]
        own = [{role: task[role] for role in roles if task.get(role) is not None} for task in tasks]
        if problems := problems | {"BadValue" for brought in own if brought.keys() & options.keys()}:
            raise Refused(*problems)
        puts = zip(keys, tasks, [{**options, **brought} for brought in own])
        try:
            return [self.put_one(*one, on_conflict or "raise") for one in puts]
        except Refused as refused:  # a batch that is too large and has a key twice is refused for either
            both = {"Full", "IntegrityError"} if len(tasks) > 1 and "limit" in self.on and not self.alone else set()
            if len(tasks) > 1 and self.alone and self.rows.keys() & {*keys}:  # its row may also hold a value twice
                both |= {"Duplicate", "IntegrityError"}
            raise Refused(*refused.errors, *both, state=refused.state) from None

    def put_one(self, key: Any, task: Row, given: Options, on_conflict: str) -> tuple[Any, Row]:
        to = self.goes("put", given)
        for held in self.holders(self.alone[:1], task.get("job")):
            if on_conflict == "raise":
                raise Refused("Duplicate")
            if on_conflict == "replace" and self.rows[held]["state"] == "T":
                raise Refused("WrongState", state="T")
            if on_conflict == "replace":
                forgotten = {role: None for role in ("ttl", "ttr") if role in self.roles}
                self.enter(held, self.rows[held] | forgotten | task | {"state": "X"}, to, given)
            return held, self.rows[held]
        crowd = sum(self.state(row) in "WRTBP" for row in self.rows.values())
        refused = ["Full"] * (crowd + 1 > self.on.get("limit", math.inf)) + ["IntegrityError"] * (key in self.rows)
        if refused:
            raise Refused(*refused)
        return key, self.enter(key, FRESH | task, to, given)

    def release_all(self, session: str | None = None) -> int:
        holders = {key: self.rows[key]["holder"] or (None,) for key in self.oldest("T")}
        ours = [key for key, holder in holders.items() if session in (None, holder[0])]
        return len([self.enter(key, self.rows[key], "R", {}) for key in ours])

    def close(self, session: str) -> None:
        if "not_check_session" not in self.on:
            self.release_all(session)
        self.sessions.pop(session, None)

    def truncate(self) -> int:
        return len([self.enter(key, row, "X", {}) for key, row in list(self.rows.items()) if self.state(row) != "X"])

    def sweep(self) -> int:
        moves = 0
        for row in self.rows.values():
            self.time_unowned(row)
        while due := [(key, to) for key, row in self.rows.items() if (to := self.due(row))]:
            moves += len([self.enter(key, self.rows[key], to, {}) for key, to in due])
        return moves

    def due(self, row: Row) -> str | None:
        """Where time takes a task. Which of two times that passed comes first is the order of the features."""
        state, found = self.state(row), {}
        if TIMED.get(state) in self.on and row["runat"] is not None and row["runat"] <= self.now:
            found[TIMED[state]] = "X" if state in "RZ" else "R"
        if "lifetime" in self.on and state in tuple("RWTBP") and row["deadline"] is not None:
            found |= {"lifetime": "R" if state == "T" else "X"} if row["deadline"] <= self.now else {}
        return next((found[name] for name in self.on if name in found), None)

    def time_unowned(self, row: Row) -> None:
        """Let the ttr of the queue begin for a row that is taken, and by nobody, when a queue is installed."""
        ttr = self.on.get("ttr", True)
        if self.state(row) == "T" and row["holder"] is None and row["runat"] is None and ttr is not True:
            row["runat"] = after(self.now, finite(ttr))

    def installed_anew(self, features: Mapping[str, Any]) -> Model:
        """The model under other features."""
        new = Model(features, self.roles, self.tubes, self.now)
        new.takes = self.takes
        new.restore(self.snapshot())
        if any(self.state(row) not in new.states + "X" for row in self.rows.values()):
            raise Refused("ConfigurationError")
        utubes = Counter(row["utube"] for row in self.rows.values() if self.state(row) == "T")
        if new.most and any(n > new.most for utube, n in utubes.items() if utube is not None):
            raise Refused("ConfigurationError")
        try:
            for key, row in list(new.rows.items()):
                new.write(key, row)
        except Refused as refused:  # two tasks may not hold one value from now on
            raise Refused("ConfigurationError") from refused
        for row in new.rows.values():
            new.time_unowned(row)
        return new


def finite(seconds: float | None) -> float | None:
    return None if seconds == math.inf else seconds


def after(moment: float | None, seconds: float | None) -> float | None:
    return None if moment is None or seconds is None else moment + seconds
