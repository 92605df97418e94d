import{b as t,E as a}from"./ui-CT8jbBbe.js";function e(){return t(a,{title:"approvals"})}export{e as default};
