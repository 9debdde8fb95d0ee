"""A question that was stored gives the same answer when it is asked again."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.policy import Situation
from ejbd.core.question import Question
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.state import ElasticState, HeldSubjob

seconds = st.floats(1.0, 1e6)
slots = st.lists(st.builds(BackfillSlot, st.integers(1, 64), seconds | st.just(UNLIMITED)), max_size=3).map(
    lambda found: tuple(sorted(found, key=lambda s: (s.processors, -s.duration_s)))
)
held = st.builds(HeldSubjob, st.text(min_size=1), st.integers(1, 32), seconds | st.just(UNLIMITED), st.booleans())
states = st.builds(
    ElasticState,
    st.text(),
    st.integers(1, 64),
    seconds,
    st.floats(0.0, 1e5),
    st.lists(held, max_size=3).map(tuple),
    movable=st.booleans(),
)
parameters = st.builds(
    BundlingParameters,
    st.integers(1, 64),
    st.floats(0, 600),
    st.floats(1, 4),
    max_walltime_s=seconds | st.just(UNLIMITED),
)


@given(st.builds(Question, st.sampled_from(Situation), states, slots, st.floats(0, 1e9), parameters))
def test_the_same_question_has_the_same_answer(question: Question) -> None:
    stored = json.loads(json.dumps(question.to_json(), allow_nan=False))
    again = Question.from_json(stored)
    assert again == question
    assert again.answer() == question.answer()
