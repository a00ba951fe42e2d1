# shellcheck shell=bash
# To be sourced by the scripts here and above: help, and one line for what is wrong. $misuse: exit status of wrong use (2).
me=$(basename "$0") misuse=${misuse:-2}
wrong() { echo "$me: $*" >&2; exit "$misuse"; }
unknown() { wrong "unknown ${2:-option} '$1' (--help tells them)"; }
given() { [ $# -gt 2 ] || wrong "$1 wants $2"; }                              # given OPTION WHAT [VALUE...]
number() {                                                                    # number OPTION WHAT LEAST [VALUE...]
  [ $# -gt 3 ] || wrong "$1 wants $2"
  [[ $4 =~ ^[1-9][0-9]{0,6}$ ]] && [ "$4" -ge "$3" ] || wrong "$1 wants $2, not '$4'"
}
one_of() {                                                                    # one_of OPTION 'WORD...' [VALUE...]
  [ $# -gt 2 ] || wrong "$1 wants one of: $2"
  [[ $3 =~ ^[a-z]+$ ]] && [[ " $2 " == *" $3 "* ]] || wrong "$1 wants one of: $2, not '$3'"
}
variable() {                                                                  # variable OPTION [VALUE...]
  given "$1" NAME=VALUE "${@:2}"
  [[ $2 =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || wrong "$1 wants NAME=VALUE, not '$2'"
}
