package plugin

import (
	"encoding/json"
	"fmt"
	"io"
)

const outputJSON = "json"

func (c *command) checkOutput() error {
	if c.output == "" || c.output == outputJSON {
		return nil
	}
	return fmt.Errorf("there is no output %q: use -o json, or leave -o out for text", c.output)
}

// texter prints itself for people.
type texter interface {
	text(w io.Writer) error
}

// print prints a result as it was asked for.
func (c *command) print(result texter) error {
	if c.output != outputJSON {
		return result.text(c.out)
	}
	encoder := json.NewEncoder(c.out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(result)
}
