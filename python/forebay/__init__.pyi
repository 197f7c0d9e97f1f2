"""forebay: a training data loader that never exceeds its memory budget. Linux only."""

from ._forebay import BadConfigError as BadConfigError
from ._forebay import BadDataError as BadDataError
from ._forebay import BadStateError as BadStateError
from ._forebay import BadUseError as BadUseError
from ._forebay import Error as Error
from ._forebay import ForkedError as ForkedError
from ._forebay import HeldError as HeldError
from ._forebay import IoError as IoError
from ._forebay import MissingError as MissingError
from ._forebay import NoDeviceError as NoDeviceError
from ._forebay import NoMemoryError as NoMemoryError
from ._forebay import NotBuiltError as NotBuiltError
from ._forebay import OverBudgetError as OverBudgetError
from ._forebay import StoppedError as StoppedError
from .cached import Cached as Cached
from .dataloader import DataLoader as DataLoader
from .device import DeviceDataset as DeviceDataset
from .device import DeviceLoader as DeviceLoader
from .device import retry_on_oom as retry_on_oom
from .loader import Budget as Budget
from .loader import ForebayWarning as ForebayWarning
from .loader import Loader as Loader
from .monitor import MemoryMonitor as MemoryMonitor
from .program import plan as plan
from .program import run as run

__version__: str
__all__ = [
    "BadConfigError", "BadDataError", "BadStateError", "BadUseError", "Budget", "Cached",
    "DataLoader", "DeviceDataset", "DeviceLoader", "Error", "ForebayWarning", "ForkedError", "HeldError",
    "IoError", "Loader", "MemoryMonitor", "MissingError", "NoDeviceError", "NoMemoryError",
    "NotBuiltError", "OverBudgetError", "plan", "retry_on_oom", "run", "StoppedError",
]
