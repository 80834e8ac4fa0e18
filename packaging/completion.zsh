#compdef turnout
# zsh completion of turnout(1): subcommands and options as its --help names them.
local -a words_found
if (( CURRENT == 2 )); then
  words_found=(${(f)"$($words[1] --help 2>/dev/null | sed -n '/^Subcommands:/,$ s/^  \([a-z][a-z]*\) .*/\1/p')"}
    --help --version)
elif [[ $words[CURRENT] == -* ]]; then
  words_found=(${(f)"$($words[1] $words[2] --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*')"})
else
  _files
  return
fi
compadd -a words_found
