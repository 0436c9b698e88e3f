"""Draws the two pictures of README and architecture.md, light and dark by the reader's setting.

python docs/pictures.py            writes docs/system.svg and docs/episode.svg; a test keeps them
"""

import sys
from pathlib import Path

WIDTH = 680
STYLE = """\
svg { --ink: #1f2328; --soft: #57606a; --page: #ffffff; --data_pipeline: #ddf4ff; --art_e: #dafbe1;
  --evals: #fff8c5; --training: #fbefff; --none: #f6f8fa; font: 16px system-ui, sans-serif }
@media (prefers-color-scheme: dark) { svg { --ink: #e6edf3; --soft: #9198a1; --page: #0d1117;
  --data_pipeline: #0c2d4a; --art_e: #10341d; --evals: #3b2f00; --training: #33204f;
  --none: #161b22 } }
text { fill: var(--ink); text-anchor: middle } .title { font-weight: 600; font-size: 19px }
.folder { font: 14.5px ui-monospace, monospace } .soft { fill: var(--soft) }
.left { text-anchor: start } .end { text-anchor: end }
.call { paint-order: stroke; stroke: var(--page); stroke-width: 5px }
line, path { stroke: var(--soft); stroke-width: 1.6; fill: none; marker-end: url(#tip) }
rect { stroke: var(--soft); stroke-width: 1 } .lane { stroke-dasharray: 3 5; marker-end: none }
.page { fill: var(--page); stroke: none } .frame { fill: none; stroke-dasharray: 6 4 }
#tip path { fill: var(--soft); stroke: none; marker-end: none }"""
TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
    ' orient="auto"><path d="M0 0L8 4L0 8z"/></marker>'
)


def picture(title: str, height: int, parts: list[str]) -> str:
    """Return an SVG of the parts, one a line."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' role="img"><title>{title}</title><style>\n{STYLE}\n</style>{TIP}'
    )
    page = f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>'
    return "\n".join([head, page, *parts, "</svg>\n"])


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Return words at a place; `kind`: their classes in `STYLE`."""
    return f'<text x="{x}" y="{y}" class="{kind}">{words}</text>'


def box(x: float, y: float, width: float, title: str, lines: list[str], folder: str) -> str:
    """Return a box in its package's colour: a title, lines about it, and its folder."""
    package = folder.partition("/")[0]
    fill, height = package if f"--{package}:" in STYLE else "none", 52 + 21 * len(lines)
    rows = [text(x + width / 2, y + 26, title, "title")]
    rows += [text(x + width / 2, y + 48 + 21 * number, each) for number, each in enumerate(lines)]
    rows.append(text(x + width / 2, y + height - 6, folder, "folder soft"))
    place = f'x="{x}" y="{y}" width="{width}" height="{height}" rx="8"'
    return "".join([f'<rect {place} style="fill: var(--{fill})"/>', *rows])


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """Return an arrow from one place to the other."""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def system() -> str:
    """Return the way of a mail to a reward, and back into the weights."""
    width, columns, rows = 198, (12, 241, 470), (12, 166, 320)
    boxes = (
        ("Mail", ["mbox, IMAP, Enron,", "made-up companies"], "data_pipeline/ingest"),
        ("Inbox", ["one DuckDB file,", "one person's mail"], "art_e/inbox"),
        ("Golden set", ["questions, answers,", "the mails with them"], "data_pipeline/golden"),
        ("Policy", ["a hosted or local", "model, or none"], "art_e/models"),
        ("Episode", ["search, read, answer", "in at most ten turns"], "art_e/episode.py"),
        ("Judge", ["right or wrong,", "and supported?"], "evals/judges"),
        ("GRPO", ["advantages of groups,", "clipped loss (TRL)"], "training/grpo.py"),
        ("Rollouts", ["a question's episodes,", "token by token"], "training/roller.py"),
        ("Reward", ["verdict, effort,", "sources, format"], "training/reward.py"),
    )
    places = [(x, y) for y in rows for x in columns]
    parts = [box(*place, width, *each) for place, each in zip(places, boxes, strict=True)]
    left, middle, right = (x + width / 2 for x in columns)
    row = [y + 47 for y in rows]
    parts += [
        arrow(columns[0] + width, row[0], columns[1] - 2, row[0]),
        arrow(columns[1] + width, row[0], columns[2] - 2, row[0]),
        arrow(columns[0] + width, row[1] - 10, columns[1] - 2, row[1] - 10),
        arrow(columns[1], row[1] + 12, columns[0] + width + 2, row[1] + 12),
        arrow(columns[1] + width, row[1], columns[2] - 2, row[1]),
        arrow(columns[2], row[2], columns[1] + width + 2, row[2]),
        arrow(columns[1], row[2], columns[0] + width + 2, row[2]),
        arrow(middle - 40, 106, middle - 40, 164), text(middle - 66, 140, "mail", "soft"),
        arrow(columns[2] + 30, 106, columns[1] + width - 30, 164),
        text(middle + 62, 130, "questions", "soft"),
        arrow(right + 10, 106, right + 10, 164), text(right + 22, 140, "answers", "soft left"),
        arrow(right + 10, 260, right + 10, 318), text(right + 22, 294, "verdict", "soft left"),
        arrow(left, 320, left, 262), text(left + 12, 296, "new weights", "soft left"),
    ]  # fmt: skip
    return picture("From mail to reward: ART-E and its folders", 426, parts)


def episode() -> str:
    """Return one episode as a sequence: who calls whom, from the question to the reward."""
    lanes = {"Policy": 68, "Episode": 240, "Tools": 384, "Inbox": 502, "Judge": 612}
    folders = ("art_e/models", "art_e/episode.py", "art_e/tools.py", "art_e/inbox", "evals/judges")
    calls = (
        ("Episode", "Policy", "prompt, question"),
        ("Policy", "Episode", "search_emails"),
        ("Episode", "Tools", "run the call"),
        ("Tools", "Inbox", "search"),
        ("Inbox", "Tools", "hits"),
        ("Tools", "Episode", "observation"),
        ("Episode", "Policy", "hits m1, m2, ..."),
        ("Policy", "Episode", "read_email m1"),
        ("Episode", "Policy", "text of m1"),
        ("Policy", "Episode", "return_final_answer"),
        ("Episode", "Judge", "answer, gold answer, mails read"),
        ("Judge", "Episode", "verdict: right, supported"),
    )
    height = 112 + 32 * len(calls)
    parts = []
    for (name, x), folder in zip(lanes.items(), folders, strict=True):
        parts += [
            f'<line class="lane" x1="{x}" y1="66" x2="{x}" y2="{height - 34}"/>',
            text(x, 30, name, "title"), text(x, 52, folder, "folder soft"),
        ]  # fmt: skip
    parts.append(f'<rect class="frame" x="10" y="110" width="546" height="{32 * 9 + 4}" rx="6"/>')
    parts.append(text(548, 131, "each turn, at most 10", "soft end call"))
    for number, (caller, called, words) in enumerate(calls):
        (x1, x2), y = (lanes[caller], lanes[called]), 100 + 32 * number
        parts += [
            arrow(x1, y, x2 + (2 if x1 > x2 else -2), y),
            text((x1 + x2) / 2, y - 9, words, "call"),
        ]
    facts = "facts of the episode + verdict = reward (training/reward.py)"
    parts.append(text(WIDTH / 2, height - 12, facts, "soft"))
    return picture("One episode, from question to reward", height, parts)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent
    (folder / "system.svg").write_text(system(), encoding="utf-8")
    (folder / "episode.svg").write_text(episode(), encoding="utf-8")
