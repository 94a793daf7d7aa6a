"""The journal's checker, under the name that tests know it by."""

from __future__ import annotations

from fairlead.studies.policy_lab.journal_checker import BadJournalError, Checked, JobReport, check_journal, need

__all__ = ["BadJournalError", "Checked", "JobReport", "check_journal", "need"]
