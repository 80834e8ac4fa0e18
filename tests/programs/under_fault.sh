#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs a program that TURNOUT_FAULT is set for: it must succeed, and a fault must have hit it.
#   under_fault.sh PROGRAM [ARGS...]
out=$("$@" 2>&1)
code=$?
printf '%s\n' "$out"
[ $code -eq 0 ] || exit $code
case $out in *": hit "[1-9]*) ;; *) echo "no fault hit"; exit 1 ;; esac
