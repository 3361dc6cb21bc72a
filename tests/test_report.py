"""`course report` from end to end: a reader's masks and tables in, a page, a JSON file and fused truth out."""

import json
import subprocess
import sys
import time
from html.parser import HTMLParser

import numpy as np
import pytest
import SimpleITK
import torch
from typer.testing import CliRunner

from course_lib.annotations import MISSING, Annotations
from course_lib.annotators import simulate_labels
from course_lib.cli import app
from course_lib.confusion import said_rows
from course_lib.fusion import dawid_skene, majority
from course_lib.networks import seeded
from course_lib.report import analyse, report
from course_lib.report.held_out import CASES, CHANCE, EACH, PLACES, SHARED, VOTE, choice, compare_labels
from course_lib.report.held_out import _by_vote, _left_out
