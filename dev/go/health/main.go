// Prints what Argo CD and kstatus say of objects, which come as JSON on the standard input.
//
// The answer is a list of the same length, each with the `health` that the health check (a Lua script, the only
// argument) gives to the object, and with its `kstatus`.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	luajson "layeh.com/gopher-json"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

const timeLimit = time.Second

type said struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

type verdict struct {
	Health  said `json:"health"`
	Kstatus said `json:"kstatus"`
}

// health runs a script with what Argo CD lets it have: the base and the table library, and a second.
func health(script string, text []byte) (said, error) {
	answer := said{}
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		call := lua.P{Fn: state.NewFunction(open), NRet: 0, Protect: true}
		if err := state.CallByParam(call, lua.LString(name)); err != nil {
			return answer, err
		}
	}
	limited, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	state.SetContext(limited)
	object, err := luajson.Decode(state, text)
	if err != nil {
		return answer, err
	}
	state.SetGlobal("obj", object)
	if err := state.DoString(script); err != nil {
		return answer, err
	}
	returned, err := luajson.Encode(state.Get(-1))
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(returned, &answer)
}

func kstatus(text []byte) (said, error) {
	object := unstructured.Unstructured{}
	if err := object.UnmarshalJSON(text); err != nil {
		return said{}, err
	}
	computed, err := status.Compute(&object)
	if err != nil {
		return said{}, err
	}
	return said{computed.Status.String(), computed.Message}, nil
}

func judge(script string, objects []json.RawMessage) ([]verdict, error) {
	verdicts := make([]verdict, len(objects))
	for index, text := range objects {
		var err error
		if verdicts[index].Health, err = health(script, text); err != nil {
			return nil, fmt.Errorf("health check of object %d: %w", index, err)
		}
		if verdicts[index].Kstatus, err = kstatus(text); err != nil {
			return nil, fmt.Errorf("kstatus of object %d: %w", index, err)
		}
	}
	return verdicts, nil
}

func run() error {
	var objects []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		return err
	}
	verdicts, err := judge(os.Args[1], objects)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(verdicts)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
