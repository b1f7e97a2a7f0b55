#!/bin/sh
# When udev has settled: what the run before udev has put off.
/usr/bin/dormouse-wake-hook
