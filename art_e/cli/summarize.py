"""`summarize`: a summary of a thread, or of the mails of a search, with sources.

One call of a model gets the text that each mail adds; without a model these texts are printed. Text
of mails and models is untrusted."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import accumulate
from string import Template
from typing import Annotated, Any, NamedTuple

from typer import Argument, Exit, Option, Typer

from art_e.cli import model_options, options, output
from art_e.cli.conversation import Conversation, format_source, source_json, with_fix
from art_e.cli.mail import mail_excerpt, query_from_args
from art_e.errors import UserError
from art_e.inbox.mail import Email, format_date
from art_e.message import observation_json
from art_e.models.base import OFFLINE, PolicyError, PolicyStep
from art_e.models.model import Model, default_model
from art_e.quotations import LEFT_OUT, added_mails
from art_e.text import prompt_text
from art_e.tools import MAX_BODY_CHARS, Tools, schemas

MAX_CHARS = 60_000  # of the mails in a call, about 15,000 tokens
ANSWER = "return_final_answer"
_CITATION = re.compile(r" *\[([\d ,]{1,100})\]")

app = Typer(rich_markup_mode=None, add_completion=False)


class Summary(NamedTuple):
    """A model's summary, the mail numbers that it cites, and the cited numbers that don't exist."""

    text: str
    cited: list[int]
    dropped: list[str]


@app.command(context_settings={"ignore_unknown_options": True})
def summarize(
    words: Annotated[
        list[str] | None, Argument(metavar="QUERY...", help="The mails, as for art-e search.")
    ] = None,
    thread: Annotated[
        str | None, Option(metavar="MAIL", help="The conversation of a mail, as for art-e thread.")
    ] = None,
    inbox: options.InboxOption = None,
    model: model_options.ModelOption = None,
    as_of: options.AsOfOption = None,
    junk: options.AllOption = False,
    limit: Annotated[int, options.integer("Maximum number of mails of a search.")] = 50,
    max_cost: model_options.MaxCostOption = None,
    timeout: model_options.TimeoutOption = None,
    db: options.DbOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Sum up a thread, or the mails of a search, with sources."""
    if (thread is None) == (not words):
        raise UserError("nothing to summarize: give search words, or --thread MAIL")
    model = model or default_model()
    chosen = model_options.Options(max_cost=max_cost, junk=junk, timeout=timeout)
    if thread is not None:
        with options.opened_mail(thread, db, inbox, as_of, junk=junk) as (file, opened, name):
            conversation = Conversation(opened, file.path, replace(chosen, junk=file.junk))
            _sum_up(conversation, opened.thread(name), model, as_json)
        return
    query = query_from_args(words or [], options.parse_day(as_of, "--as-of"))
    chosen = replace(chosen, junk=junk or query.junk)
    with options.opened_inbox(db, inbox, as_of, junk=chosen.junk) as (file, opened):
        hits = opened.search(query.words, query=query, max_results=limit + 1)
        if len(hits) > limit:
            output.note(f"more than {limit} mails match; the best are used, --limit N takes more")
        mails = filter(None, opened.read_many([hit.message_id for hit in hits[:limit]]))
        in_order = sorted(mails, key=lambda mail: (mail.date is None, mail.date))
        _sum_up(Conversation(opened, file.path, chosen), in_order, model, as_json)


def _sum_up(conversation: Conversation, mails: Sequence[Email], model: str, as_json: bool) -> None:
    """Print a summary of mails, oldest first, and save them as the list for later commands."""
    if not mails:
        raise UserError("no mail matches; try other words or fewer filters")
    added, left_out = added_mails(mails), 0
    if model != OFFLINE:
        sizes = accumulate(min(len(mail.body), MAX_BODY_CHARS) for mail in reversed(added))
        if left_out := len(added) - max(1, sum(size <= MAX_CHARS for size in sizes)):
            output.note(f"only the latest {len(added) - left_out} of {len(added)} mails fit")
    added = added[left_out:]
    if not as_json:
        ids, junk = [mail.message_id for mail in added], conversation.options.junk
        options.save_list(conversation.db, conversation.inbox, ids, junk=junk)
    step = None if model == OFFLINE else _call_model(conversation, added, model)
    summary = step and parse_summary(step, len(added))
    if as_json:
        fields: dict[str, Any] = {"inbox_address": conversation.inbox.address, "model": model}
        if step and summary:
            fields |= summary._asdict() | {"usage": asdict(step.usage), "cost_usd": step.cost_usd}
        numbered = [{**source_json(mail), "added": mail.body} for mail in added]
        output.print_json({**fields, "left_out": left_out, "mails": numbered})
    elif step and summary:
        output.print_text((summary.text, "bold"))
        unsure = [] if summary.cited else ["without sources"]
        unsure += [f"it cites mail {each}, which does not exist" for each in summary.dropped]
        for line in unsure:
            output.print_text((f"  ({line})", "dim"))
        for number in summary.cited:
            output.print_text(*format_source(added[number - 1]), lead=f"{number:>2}. ")
        cost = output.format_cost(step.cost_usd)
        tokens = f"{step.usage.prompt_tokens:,} + {step.usage.completion_tokens:,} tokens"
        output.print_text((f"{step.seconds or 0:.2f} s, {tokens}, {cost}, {model}", "dim"))
    else:
        output.note("no model was asked: here is what each mail adds; --model NAME sums it up")
        for number, mail in enumerate(added, 1):
            date, body = format_date(mail.date, mail.message_id), mail.body.replace(LEFT_OUT, "")
            excerpt = mail_excerpt(date, str(mail.sender), mail.subject, body, whole=True)
            output.print_text(excerpt, lead=f"{number:>2}. ")


def _call_model(conversation: Conversation, mails: Sequence[Email], model: str) -> PolicyStep:
    """Ask the model for a summary of the mails; exit with code 1 if it fails."""
    conversation.load(model)
    if (notice := Model(model).notice) is not None:
        output.note(notice)
    tools = Tools(conversation.inbox)
    numbered = enumerate(mails, 1)
    rows = ({**tools.show(mail).content, "message_id": str(number)} for number, mail in numbered)
    template = Template(prompt_text("art_e", "summarize"))
    system = template.substitute(inbox_address=conversation.inbox.address)
    texts = {"system": system, "user": "\n".join(map(observation_json, rows))}
    messages = [{"role": role, "content": text} for role, text in texts.items()]
    with output.status() as conversation.say:
        conversation.on_answer = lambda answer: conversation.say(f"writes: {answer}")
        conversation.say(f"waiting for {model}")
        try:
            return asyncio.run(conversation.policy.act(messages, schemas((ANSWER,))))
        except PolicyError as error:
            output.note(f"Error: {with_fix(error.kind, str(error))}")
            raise Exit(1) from None


def parse_summary(step: PolicyStep, count: int) -> Summary:
    """Return the summary in a model's message, without citations outside 1 to `count`."""
    calls = (call.parsed for call in step.message.tool_calls if call.name == ANSWER)
    answers = [str(call.get("answer") or "") for call in calls if isinstance(call, dict)]
    text = next(filter(None, answers), step.message.content or "(no summary)")
    numbers = {str(number): number for number in range(1, count + 1)}
    citations = list(dict.fromkeys(re.findall(r"\d+", " ".join(_CITATION.findall(text)))))

    def keep_valid(citation: re.Match[str]) -> str:
        valid = [each for each in re.findall(r"\d+", citation[1]) if each in numbers]
        return f" [{', '.join(valid)}]" if valid else ""

    cited = sorted(numbers[each] for each in citations if each in numbers)
    dropped = [each for each in citations if each not in numbers]
    return Summary(_CITATION.sub(keep_valid, text), cited, dropped)
