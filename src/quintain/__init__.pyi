from quintain.client import Agent as Agent
from quintain.client import AsyncAgent as AsyncAgent
from quintain.client import AsyncComparison as AsyncComparison
from quintain.client import AsyncDataset as AsyncDataset
from quintain.client import AsyncEvaluation as AsyncEvaluation
from quintain.client import AsyncHome as AsyncHome
from quintain.client import AsyncJob as AsyncJob
from quintain.client import AsyncRuns as AsyncRuns
from quintain.client import AsyncTrajectory as AsyncTrajectory
from quintain.client import Comparison as Comparison
from quintain.client import Dataset as Dataset
from quintain.client import Evaluation as Evaluation
from quintain.client import Home as Home
from quintain.client import Job as Job
from quintain.client import Runs as Runs
from quintain.client import Trajectory as Trajectory
from quintain.client import aopen as aopen
from quintain.client import open as open
from quintain.errors import QuintainError as QuintainError

__version__: str
