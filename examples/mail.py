"""Send mail with delays and retries.

A failed mail is tried again, after twice as long each time. After three attempts it is buried. The program delivers
into mailboxes in a folder (Maildir); the delivery fails if the mailbox is missing.
"""

import mailbox
import tempfile
import time
from pathlib import Path

import peewee as pw

import xq

ATTEMPTS = 3
BACKOFF = 0.1  # seconds after the first failure; it doubles with each further one

folder = Path(tempfile.mkdtemp(prefix="xq-mail-"))
db = pw.SqliteDatabase(str(folder / "mail.db"))


class Mail(pw.Model):
    id = pw.AutoField()
    recipient = pw.TextField()
    text = pw.TextField()
    error = pw.TextField(null=True)  # of the last attempt
    status = pw.CharField(max_length=1, default="R")
    runat = pw.DoubleField(null=True)  # the end of its delay, or of its ttr
    attempts = pw.IntegerField(default=0)  # the number of its takes

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
    """Try to deliver a mail. Then ack it, release it with a delay, or bury it."""
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
            print(what, f"failed, next attempt in {backoff:.1f} seconds")
    else:
        mails.ack(mail)
        print(what, "delivered")


def work_on_ready_mails() -> None:
    while mail := mails.take():
        attempt(mail)


def work_until_no_mail_waits() -> None:
    work_on_ready_mails()
    while mails.count("W"):
        time.sleep(0.02)
        work_on_ready_mails()


mailbox.Maildir(folder / "ann")
mails.put({"recipient": "bob", "text": "You have no mailbox yet"})
mails.put({"recipient": "carol", "text": "You will not have one for long"})
mails.put({"recipient": "ann", "text": "See you on Monday"}, delay=1)
mails.put({"recipient": "ann", "text": "Welcome"})

work_on_ready_mails()
print("bob gets a mailbox")
mailbox.Maildir(folder / "bob")
work_until_no_mail_waits()

for mail in mails.by_state("B"):
    print(f"Buried: {mail.recipient}, because of {mail.error}")
print("carol gets a mailbox, and the buried mail is dug up")
mailbox.Maildir(folder / "carol")
mails.dig(n=None)
work_until_no_mail_waits()

boxes = {name: len(mailbox.Maildir(folder / name)) for name in ("ann", "bob", "carol")}
print("Delivered:", boxes)
print("Transitions:", mails.stats(pretty=True).transition)
print("The mails and the database are in", folder)
db.close()
