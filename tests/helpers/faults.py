"""What the fault suite has done and found, to be printed at its end."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Counts:
    """Faults by kind, frames that were lost, and outputs that were not those of undisturbed runs."""

    injected: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    wrong: int = 0
    touched: int = 0  # files of other users that were not left as they were

    def check(self, fault: str, same: bool, lost: int = 0, times: int = 1) -> None:
        """Count a fault and what came of it, and fail where that is not what an undisturbed run gives."""
        self.injected[fault] += times
        self.lost += lost
        self.wrong += not same
        assert same and not lost, f"{fault}: the output is not that of an undisturbed run, {lost} frames lost"

    def check_others(self, fault: str, untouched: bool) -> None:
        """Count what another user has planted, and fail if his files were changed."""
        self.injected[fault] += 1
        self.touched += not untouched
        assert untouched, f"{fault}: a file of another user was touched"

    def lines(self) -> list[str]:
        """What is to be printed."""
        total = sum(self.injected.values())
        kinds = [f"  {count:4}  {fault}" for fault, count in self.injected.items()]
        found = f"frames lost: {self.lost}, wrong outputs: {self.wrong}"
        return [*kinds, f"faults injected: {total}, {found}, files of others touched: {self.touched}"]


COUNTS = Counts()
