# bash completion of turnout(1): subcommands and options as its --help names them.
_turnout() {
  local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[0]} words
  if [ "$COMP_CWORD" -eq 1 ]; then
    words=$("$command" --help 2>/dev/null | sed -n '/^Subcommands:/,$ s/^  \([a-z][a-z]*\) .*/\1/p')
    words+=" --help --version"
  elif [[ $current == -* ]]; then
    words=$("$command" "${COMP_WORDS[1]}" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*')
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _turnout turnout
