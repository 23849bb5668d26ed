"""The configuration: what may be written in YAML, and how it becomes values.

Read `models` first (every field, its unit and default). A file takes this way: `source`
(text to values that remember their place), `shorthand` (short forms to long ones), `models`
(types), `check` (all problems at once, in plain words); `load` reads files for it. `explain`
says in sentences what a configuration will do, `render` shows problems as a compiler would,
`schema` makes the JSON Schema for editors.
"""
