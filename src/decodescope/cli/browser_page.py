"""The page that `serve` shows in a browser: a terminal, and nothing from another host."""

from string import Template

# textual.js finds the terminal by its class, and marks the body when a byte came and at the end.
PAGE = Template("""<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <title>decodescope</title>
    <link rel="icon" href="data:,">
    <link rel="stylesheet" href="/static/css/xterm.css">
    <link rel="stylesheet" href="/page.css">
    <script src="/static/js/textual.js"></script>
  </head>
  <body>
    <p class="starting">decodescope is starting</p>
    <p class="ended">The app has ended. <a href="/">Start it again</a></p>
    <div class="textual-terminal" data-session-websocket-url="$websocket" data-font-size="16"></div>
  </body>
</html>
""")
STYLE = """\
@font-face {
  font-family: "Roboto Mono";
  src: url("/static/fonts/RobotoMono-VariableFont_wght.ttf");
  font-weight: 100 700;
}
@font-face {
  font-family: "Roboto Mono";
  font-style: italic;
  src: url("/static/fonts/RobotoMono-Italic-VariableFont_wght.ttf");
  font-weight: 100 700;
}
html, body { margin: 0; height: 100%; overflow: hidden; background: #0e1216; }
body { color: #dfe4ea; font-family: "Roboto Mono", monospace; }
a { color: #8fb3c4; }
p { position: absolute; width: 100%; top: 40%; margin: 0; text-align: center; z-index: 2; }
.textual-terminal { width: 100%; height: 100%; }
.ended, .-first-byte .starting, .-closed .starting { display: none; }
.-closed .ended { display: block; padding: 1em 0; background: #1c232b; }
"""
