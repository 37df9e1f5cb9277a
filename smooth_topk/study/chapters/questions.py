"""A question to answer before a figure opens: one HTML output without JavaScript, in JupyterLab and in the static book.

An invisible radio button, "not answered yet", is chosen first. As long as it is, a style rule hides everything that
the same cell shows below the question. The answer is forgotten when the page is left.
"""

import re
from collections.abc import Sequence
from hashlib import blake2s
from html import escape

from IPython.display import HTML, display

STYLE = """<style>
.predict { max-width: 44rem; margin: 0.5rem 0 1rem; padding: 0.8rem 1rem; }
.predict, .predict label { border: 1px solid #8887; border-radius: 0.4rem; }
.predict p { margin: 0 0 0.6rem; }
.predict label { display: block; margin: 0.35rem 0; padding: 0.45rem 0.8rem; cursor: pointer; }
.predict label:hover, .predict label:focus-within { border-color: currentColor; }
.predict input { margin: 0 0.5rem 0 0; }
.predict .unanswered { position: absolute; opacity: 0; pointer-events: none; }
.predict label.reveal { display: inline-block; border: 0; padding: 0.2rem 0; text-decoration: underline; }
.predict label.reveal input { position: absolute; opacity: 0; }
.predict .then { margin: 0.6rem 0 0; }
.predict:has(.unanswered:checked) .then, .predict:not(:has(.unanswered:checked)) .reveal,
.jp-OutputArea-child:has(.predict .unanswered:checked) ~ .jp-OutputArea-child,
.cell_output > :has(.predict .unanswered:checked) ~ * { display: none !important; }
.predict:not(:has(.unanswered:checked)) label.right { border: 2px solid #2a9d55; }
.predict:not(:has(.unanswered:checked)) label.right::after { content: " ✓"; color: #2a9d55; font-weight: 700; }
.predict label:not(.right):has(:checked) { border: 2px solid #d1495b; }
.predict label:not(.right):has(:checked)::after { content: " ✗"; color: #d1495b; font-weight: 700; }
</style>"""


def predict(question: str, answers: Sequence[str], *, right: int, then: str = "") -> None:
    r"""Asks a question and hides what its cell shows next until the reader has chosen an answer, or "show me".

    Call it in the cell of the figure, before the figure. What the figure shows goes into `then`, and the caption above
    the cell says only what is drawn.

    Args:
        question: text, which may hold $maths$.
        answers: two to four texts to click.
        right: place of the right answer, from 0.
        then: what the figure shows; it appears with the figure.

    Example, in front of the figure that answers it:

        predict("What happens to the corner of the hard loss as $\tau$ grows?",
                ["It moves to the right.", "It becomes a wider bend."], right=1,
                then="The bend is several $k\tau$ wide; its place stays.")
        explore(draw, tau=1.0)
    """
    display(HTML(question_html(question, answers, right, then)))


def question_html(question: str, answers: Sequence[str], right: int, then: str) -> str:
    """Returns what `predict` shows."""
    if not 2 <= len(answers) <= 4 or not 0 <= right < len(answers):
        raise ValueError(f"A question has two to four answers and one is right, got {len(answers)} and right={right}.")
    name = "predict-" + blake2s(question.encode(), digest_size=5).hexdigest()
    radio = f'<input type="radio" name="{name}" autocomplete="off"'

    def choice(kind: str, text: str) -> str:
        return f'<label class="{kind}">{radio}>{_shown(text)}</label>'

    choices = [choice("right" if place == right else "wrong", text) for place, text in enumerate(answers)]
    return (
        f'{STYLE}<form class="predict mathjax_process"><p><b>{_shown(question)}</b></p>'
        f'{radio} class="unanswered" aria-label="not answered yet" checked>'
        f'{"".join(choices)}{choice("reveal", "Show me")}<p class="then">{_shown(then)}</p></form>'
    )


def _shown(text: str) -> str:
    """HTML of a text; its $maths$ gets the delimiters that both pages typeset."""
    return re.sub(r"\$([^$]+)\$", r"\\(\1\\)", escape(text))
