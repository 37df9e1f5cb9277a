"""Where the sliders of a figure stop in the static book: round values, evenly spread, few enough to draw them all."""

import math

import ipywidgets as widgets

MOST_STOPS = 41  # of one control
FEWEST_STOPS = 3
ROUND_STEPS = [float(f"{digits}e{power}") for power in range(-3, 4) for digits in ("1", "2", "2.5", "5")]
LOG_SERIES = ((1, 2, 5), (1, 3), (1,))  # per power of ten


def grid(controls: dict[str, widgets.Widget], most: int) -> list[list]:
    """Returns the stops of every control; the longest list becomes coarser until all combinations are at most `most`.

    Example:
        >>> step, tau = widgets.IntSlider(min=0, max=3), widgets.FloatLogSlider(value=1, min=-1, max=1)
        >>> grid({"step": step, "tau": tau}, most=100)
        [[0, 1, 2, 3], [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]]
        >>> grid({"step": step, "tau": tau}, most=20)
        [[0, 1, 2, 3], [0.1, 0.3, 1.0, 3.0, 10.0]]
    """
    choices = [stops(control) for control in controls.values()]
    while math.prod(len(lists[0]) for lists in choices) > most:
        coarser = [place for place, lists in enumerate(choices) if len(lists) > 1]
        if not coarser:
            break
        longest = max(coarser, key=lambda place: (len(choices[place][0]), place))
        choices[longest] = choices[longest][1:]
    return [lists[0] for lists in choices]


def stops(control: widgets.Widget) -> list[list]:
    """Returns the lists of values at which a control may stop, fine to coarse; each holds its present value."""
    if hasattr(control, "options"):
        return [[value for _, value in control._options_full]]
    if isinstance(control.value, bool):
        return [[False, True]]
    if isinstance(control, widgets.FloatLogSlider):
        found = [_log_stops(control, series) for series in LOG_SERIES]
    else:
        found = [_even_stops(control, step) for step in _steps(control)]
    kept = [values for values in found if FEWEST_STOPS <= len(values) <= MOST_STOPS]
    return kept or [min(found, key=len)]


def ends(control: widgets.Widget) -> tuple:
    """Returns the first and the last value of a control."""
    values = stops(control)[0]
    return values[0], values[-1]


def _log_stops(control: widgets.FloatLogSlider, series: tuple[int, ...]) -> list[float]:
    low, high = control.base**control.min, control.base**control.max
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    numbers = [float(f"{digit}e{power}") for power in powers for digit in series]
    kept = [number for number in numbers if low * (1 - 1e-9) <= number <= high * (1 + 1e-9)]
    return sorted([value for value in kept if not math.isclose(value, control.value)] + [control.value])


def _steps(control: widgets.Widget) -> list:
    """The step of a control, and the larger round ones that are multiples of it."""
    larger = [step for step in ROUND_STEPS if step > control.step and (step / control.step).is_integer()]
    return [control.step, *(int(step) if isinstance(control.value, int) else step for step in larger)]


def _even_stops(control: widgets.Widget, step) -> list:
    below = math.floor((control.value - control.min) / step + 1e-9)
    above = math.floor((control.max - control.value) / step + 1e-9)
    found = [control.value + count * step for count in range(-below, above + 1)]
    return found if isinstance(control.value, int) else [round(value, 10) for value in found]
