"""Mail that is sent later, tried again after a failure, each time later, and buried after three attempts.

It is delivered into mailboxes in a folder (Maildir), and fails for real where a mailbox is missing.
"""

import mailbox
import tempfile
import time
from pathlib import Path

import peewee as pw

import xq

ATTEMPTS = 3
BACKOFF = 0.1  # seconds after the first failure; twice as long after each further one

folder = Path(tempfile.mkdtemp(prefix="xq-mail-"))
db = pw.SqliteDatabase(str(folder / "mail.db"))


class Mail(pw.Model):
    id = pw.AutoField()
    recipient = pw.TextField()
    text = pw.TextField()
    error = pw.TextField(null=True)  # of the last attempt
    status = pw.CharField(max_length=1, default="R")
    runat = pw.DoubleField(null=True)  # until when it waits, or may be worked on
    attempts = pw.IntegerField(default=0)  # how often it was taken

    class Meta:
        database = db


mails = xq.upgrade(
    Mail,
    fields={"status": "status", "runat": "runat", "attempts": "attempts"},
    features={"delayed": True, "buried": True, "ttr": 30},
)
db.create_tables([Mail])


def deliver(mail: Mail) -> None:
    mailbox.Maildir(folder / mail.recipient, create=False).add(mail.text.encode())


def attempt(mail: Mail) -> None:
    """One attempt: afterwards the mail is gone, waits for the next one, or is buried."""
    what = f"'{mail.text}' to {mail.recipient}, attempt {mail.attempts}:"
    try:
        deliver(mail)
    except Exception as error:
        update = {"error": repr(error)}
        if mail.attempts >= ATTEMPTS:
            mails.bury(mail, update=update)
            print(what, "failed, buried")
        else:
            backoff = BACKOFF * 2 ** (mail.attempts - 1)
            mails.release(mail, delay=backoff, update=update)
            print(what, f"failed, again in {backoff:.1f} seconds")
    else:
        mails.ack(mail)
        print(what, "delivered")


def work_on_what_is_ready() -> None:
    while mail := mails.take():
        attempt(mail)


def work_until_nothing_waits() -> None:
    work_on_what_is_ready()
    while mails.count("W"):
        time.sleep(0.02)
        work_on_what_is_ready()


mailbox.Maildir(folder / "ann")
mails.put({"recipient": "bob", "text": "You have no mailbox yet"})
mails.put({"recipient": "carol", "text": "You will not have one for long"})
mails.put({"recipient": "ann", "text": "See you on Monday"}, delay=1)
mails.put({"recipient": "ann", "text": "Welcome"})

work_on_what_is_ready()
print("bob gets a mailbox")
mailbox.Maildir(folder / "bob")
work_until_nothing_waits()

for mail in mails.by_state("B"):
    print(f"Buried: {mail.recipient}, because of {mail.error}")
print("carol gets a mailbox, and what is buried is dug up")
mailbox.Maildir(folder / "carol")
mails.dig(n=None)
work_until_nothing_waits()

boxes = {name: len(mailbox.Maildir(folder / name)) for name in ("ann", "bob", "carol")}
print("Delivered:", boxes)
print("What happened:", mails.stats(pretty=True).transition)
print("All of it is in", folder)
db.close()
