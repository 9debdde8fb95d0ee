"""Settings of the daemon: one TOML file, overridable by EJBD_* environment variables."""

from ejbd.config.access import TIME_OF_DAY as TIME_OF_DAY
from ejbd.config.access import DailySettings as DailySettings
from ejbd.config.access import OidcSettings as OidcSettings
from ejbd.config.access import TlsSettings as TlsSettings
from ejbd.config.daemon import Settings as Settings
from ejbd.config.daemon import load as load
from ejbd.config.limits import Limits as Limits
from ejbd.config.queues import ACCOUNT_WORD as ACCOUNT_WORD
from ejbd.config.queues import OTHERS_DAYS as OTHERS_DAYS
from ejbd.config.queues import Elasticity as Elasticity
from ejbd.config.queues import QueueSettings as QueueSettings
from ejbd.config.queues import changes_schema as changes_schema
from ejbd.config.queues import check_changes as check_changes
from ejbd.config.queues import renamed as renamed
from ejbd.config.queues import settings_model as settings_model
from ejbd.config.queues import settings_schema as settings_schema
from ejbd.config.queues import simulated_only as simulated_only
from ejbd.plugins.batches import BatchTraits as BatchTraits
from ejbd.plugins.batches import LocalSettings as LocalSettings
from ejbd.plugins.batches import PbsSettings as PbsSettings
from ejbd.plugins.batches import SlurmSettings as SlurmSettings
