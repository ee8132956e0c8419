"""Calibration: how well judges agree with labeled references and with the labels of people."""
