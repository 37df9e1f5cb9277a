"""The training demo in Chromium: its trainings against torch and the package in float64, and its page."""

import pytest
import torch
from browsing import expect

from smooth_topk import smooth_topk_loss
from smooth_topk.study.chapters.training_demo import JAVASCRIPT

STEPS = 40
TOLERANCE = 1e-9  # both sides work in float64; 40 steps multiply a rounding error by less than 1e6
SETTINGS = [
    {"k": 2, "tau": 1.0, "margin": 1.0, "noise": 0.6, "decay": 0.0, "seed": 1},
    {"k": 3, "tau": 0.1, "margin": 1.0, "noise": 0.8, "decay": 0.01, "seed": 2},
    {"k": 1, "tau": 1.0, "margin": 0.0, "noise": 0.2, "decay": 0.003, "seed": 3},
]
RACES = """
async ([source, settings, steps]) => {
  const { Race } = await import(URL.createObjectURL(new Blob([source], {type: "text/javascript"})));
  return settings.map((setting) => {
    const race = new Race(setting);
    for (let step = 0; step < steps; step++) race.step();
    const { problem, networks, labels } = race;
    const weights = Object.fromEntries(Object.entries(networks).map(([loss, network]) => [loss, [...network.weights]]));
    const {cross, smooth} = race.measure();
    return {features: [...problem.features], drawn: problem.drawn, labels, weights, cross, smooth};
  });
}
"""


@pytest.fixture(scope="module")
def races(chromium) -> list[dict]:
    page = chromium.new_page()
    values = page.evaluate(RACES, [JAVASCRIPT, SETTINGS, STEPS])
    page.close()
    return values


def trained(features, labels, loss, *, rate, decay):
    weights = torch.zeros(features.shape[1], 5, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([weights], lr=rate, momentum=0.9, nesterov=True, weight_decay=decay)
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss(features @ weights, labels).backward()
        optimiser.step()
    return weights.detach()


def test_the_page_trains_as_torch_does_with_the_losses_of_the_package(races):
    for setting, race in zip(SETTINGS, races, strict=True):
        k, decay = setting["k"], setting["decay"]
        features = torch.tensor(race["features"], dtype=torch.float64).view(150, -1)
        labels = torch.tensor(race["labels"])

        def smooth(scores, labels, options=setting):
            return smooth_topk_loss(scores, labels, k=options["k"], tau=options["tau"], margin=options["margin"])

        expected = {
            "cross": trained(features, labels, torch.nn.functional.cross_entropy, rate=1, decay=decay),
            "smooth": trained(features, labels, smooth, rate=k, decay=decay / k),
        }
        for loss, weights in expected.items():
            found = torch.tensor(race["weights"][loss], dtype=torch.float64).view_as(weights)
            assert (found - weights).abs().max() <= TOLERANCE * weights.abs().max()
            answers = (features @ weights).argmax(1)
            wrong = labels != torch.tensor(race["drawn"])
            assert race[loss]["memorised"] == (wrong & (answers == labels)).tolist()


def test_without_margin_and_with_k_and_tau_one_both_networks_are_the_same(races):
    weights = {loss: torch.tensor(values) for loss, values in races[2]["weights"].items()}
    torch.testing.assert_close(weights["cross"], weights["smooth"], rtol=0, atol=1e-9)


def test_labels_are_redrawn_from_all_five_classes_with_the_probability_of_the_slider(races):
    for setting, race in zip(SETTINGS, races, strict=True):
        wrong = sum(label != drawn for label, drawn in zip(race["labels"], race["drawn"], strict=True)) / 150
        assert abs(wrong - 0.8 * setting["noise"]) < 0.12  # three standard deviations of 150 draws
        assert set(race["labels"]) == set(range(5))


@pytest.mark.slow
def test_the_demo_trains_to_its_end_starts_again_and_shows_the_answer_under_the_pointer(book, watched):
    page = watched.page
    page.goto((book / "experiments.html").as_uri())
    demo = page.locator(".training-demo")
    expect(demo.locator(".plane circle.memorised")).to_have_count(0)
    page.get_by_role("button", name="Train", exact=True).click()
    expect(demo).to_have_attribute("data-steps", "600")
    expect(page.get_by_role("status")).to_contain_text("After 600 steps")
    assert (
        demo.locator(".map.cross circle.memorised").count() > demo.locator(".map.smooth circle.memorised").count() > 0
    )
    before = demo.locator(".map.cross p").nth(1).inner_text()
    box = demo.locator(".map.cross svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 0.9 * box["height"])
    expect(demo.locator(".map.cross p").nth(1)).not_to_have_text(before)
    page.get_by_role("button", name="Start again").click()
    expect(demo).to_have_attribute("data-steps", "0")
    page.get_by_role("button", name="One step").click()
    expect(demo).to_have_attribute("data-steps", "1")
    watched.assert_clean()


@pytest.mark.slow
def test_every_weight_decay_leaves_a_dot_for_either_loss(book, watched):
    page = watched.page
    page.goto((book / "experiments.html").as_uri())
    page.get_by_role("button", name="Try every weight decay").click()
    expect(page.get_by_text("8 of 8 weight decays tried")).to_be_visible()
    for loss in ("cross", "smooth"):
        expect(page.locator(f".training-demo circle.dot.{loss}")).to_have_count(8)


@pytest.mark.slow
def test_on_a_phone_every_target_of_the_demo_is_large_enough(book, new_page):
    page = new_page(viewport={"width": 390, "height": 844}, has_touch=True)
    page.goto((book / "experiments.html").as_uri())
    targets = page.locator(".training-demo :is(button, input):visible")
    expect(targets).to_have_count(9)
    for target in targets.all():
        box = target.bounding_box()
        assert min(box["width"], box["height"]) >= 44
