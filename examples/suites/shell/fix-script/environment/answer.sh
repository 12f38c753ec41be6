#!/bin/sh
# Six times seven.
echo $((6 * 8))
