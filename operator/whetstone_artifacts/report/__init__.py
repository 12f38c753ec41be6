"""The page of a run or of several: one file of HTML that needs nothing else."""

from whetstone_artifacts.report.page import REPORT_FILE, make_page, write_report

__all__ = ["REPORT_FILE", "make_page", "write_report"]
